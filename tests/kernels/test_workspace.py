"""Large buffers are used again, never while anyone still looks at them, and within a bound."""

import gc
import mmap

import pytest
import torch

from roann.kernels import workspace

SIZE = 3 << 20
pytestmark = pytest.mark.skipif(
    not hasattr(mmap, "MAP_PRIVATE"), reason="this system has no private memory maps"
)


def idle_bytes():
    return sum(map(len, workspace._idle))


@pytest.fixture(autouse=True)
def _empty_pool():
    gc.collect()
    workspace.release()
    yield
    workspace.release()


def test_a_buffer_is_used_again_once_nobody_holds_it():
    first = workspace.empty((SIZE,), torch.uint8)
    address = first.data_ptr()
    del first
    assert workspace.empty((SIZE,), torch.uint8).data_ptr() == address
    assert workspace.empty((SIZE // 8, 2), torch.float32).data_ptr() == address


@pytest.mark.parametrize("hold", [lambda t: t[5:9], lambda t: t.detach(), lambda t: t.numpy()])
def test_whoever_looks_at_a_buffer_keeps_it(hold):
    first = workspace.empty((SIZE,), torch.uint8).fill_(7)
    held = hold(first)
    del first
    workspace.empty((SIZE,), torch.uint8).fill_(1)
    assert (held == 7).all()


def test_a_graph_keeps_its_buffers():
    x = workspace.empty((SIZE // 4,), torch.float32).fill_(3).requires_grad_()
    y = x.square().sum()
    z = x.detach()
    del x
    workspace.empty((SIZE // 4,), torch.float32).fill_(9)
    y.backward()
    assert (z == 3).all()


def test_the_pool_is_bounded_and_can_be_released(monkeypatch):
    monkeypatch.setattr(workspace, "LIMIT", 9 << 20)
    held = [workspace.empty((SIZE,), torch.uint8) for _ in range(8)]
    assert idle_bytes() == 0
    del held
    assert SIZE <= idle_bytes() <= 9 << 20
    workspace.release()
    assert idle_bytes() == 0


@pytest.mark.parametrize(
    ("memory", "limit"), [(2 << 30, 1 << 30), (24 << 30, 3 << 30), (512 << 30, 4 << 30)]
)
def test_the_bound_grows_with_the_machine_within_bounds(monkeypatch, memory, limit):
    sizes = {"SC_PHYS_PAGES": memory >> 12, "SC_PAGE_SIZE": 1 << 12}
    monkeypatch.setattr(workspace.os, "sysconf", sizes.__getitem__)
    assert workspace.idle_limit() == limit


def test_a_system_that_does_not_tell_its_memory_gets_the_least_bound(monkeypatch):
    monkeypatch.setattr(workspace.os, "sysconf_names", {})
    assert workspace.machine_memory() is None
    assert workspace.idle_limit() == 1 << 30


def test_small_tensors_are_left_to_torch():
    del_me = workspace.empty((10, 10), torch.float64)
    assert del_me.shape == (10, 10)
    del del_me
    assert idle_bytes() == 0
