"""Sums over rows, by torch and by the compiled kernel, against float64 and its error bound."""

import pytest
import torch
from held_to import run_held_to
from hypothesis import given, settings
from hypothesis import strategies as st

from roann.kernels import fused, library, native, outer

KERNELS = [fused, native] if native.available() else [fused]
named = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__.rpartition(".")[2])


def normal(*shape, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, dtype=torch.float64, generator=g).to(dtype)


def assert_sums(kernel, a, x, u, wanted):
    """To numbers that are there already, the products are added, each sum within its rounding."""
    rows, N = a.shape
    dtype = a.dtype
    right = {"W": x, "W_i": u, "b": torch.ones(rows, 1, dtype=dtype)}
    to = {
        name: normal(N, right[name].shape[1], dtype=dtype, seed=1) if name in wanted else None
        for name in right
    }
    to = {name: t[:, 0] if name == "b" and t is not None else t for name, t in to.items()}
    to = {name: None if t is None else t.contiguous() for name, t in to.items()}
    before = {name: None if t is None else t.clone() for name, t in to.items()}
    kernel.add_outer(a, x, u, **to)
    for name in wanted:
        exact = a.double().mT @ right[name].double()
        size = a.double().abs().mT @ right[name].double().abs()
        exact, size = (t.view_as(to[name]) for t in (exact, size))
        bound = torch.finfo(dtype).eps * (rows + 2) * (size + before[name].double().abs())
        assert bool(((to[name].double() - before[name].double() - exact).abs() <= bound).all())


sizes = st.integers(1, 70)


@named
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_sums_of_any_size(kernel, data):
    rows, N, M, I = data.draw(
        st.tuples(st.integers(0, 1300), sizes, sizes, st.integers(1, outer.FEW_INPUTS + 2))
    )
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    wanted = data.draw(st.sets(st.sampled_from(["W", "W_i", "b"]), min_size=1))
    x, u = normal(rows, M, dtype=dtype), normal(rows, I, dtype=dtype)
    if data.draw(st.booleans()):  # rows with gaps between them, and columns that are rows
        x, u = normal(rows, M + 3, dtype=dtype)[:, :M], normal(I, rows, dtype=dtype).mT
    if data.draw(st.booleans()):
        x = x[:1].expand(rows, M)
    assert_sums(kernel, normal(rows, N, dtype=dtype), x, u, wanted)


@named
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("N", [128, 178, native._WIDEST_OUTER, native._WIDEST_OUTER + 1])
def test_sums_of_many_columns(kernel, N, dtype):
    """Rows that are read where they are, and rows so far apart that they are copied."""
    a, x = normal(700, N, dtype=dtype), normal(700, N, dtype=dtype, seed=1)
    assert_sums(kernel, a, x, normal(700, 2, dtype=dtype), {"W", "W_i", "b"})


@named
def test_into_columns_that_are_rows(kernel):
    a, x, W = normal(30, 5), normal(30, 5, seed=1), torch.zeros(5, 5, dtype=torch.float64).mT
    kernel.add_outer(a, x, None, W, None, None)
    torch.testing.assert_close(W, a.mT @ x, rtol=1e-13, atol=1e-13)


@named
@pytest.mark.parametrize(("N", "M"), [(33, 47), (512, 450)])
def test_they_do_not_depend_on_the_number_of_threads(kernel, N, M):
    a, x, u = (normal(9001, n, dtype=torch.float32) for n in (N, M, 2))
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3, 5, 20):
        torch.set_num_threads(threads)
        try:
            to = [torch.zeros(N, M), torch.zeros(N, 2), torch.zeros(N)]
            kernel.add_outer(a, x, u, *to)
        finally:
            torch.set_num_threads(before)
        found.append(to)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


@named
@pytest.mark.parametrize("call", [1, 5000, 1 << 40])
@pytest.mark.parametrize("rows", [1, 15, 16, 100, 333])
def test_long_sums_are_cut(kernel, rows, call, monkeypatch):
    """So that Ctrl-C is heard between the pieces."""
    monkeypatch.setattr(outer, "CALL", call)
    assert_sums(kernel, normal(rows, 5), normal(rows, 3), normal(rows, 2), {"W", "W_i", "b"})


@pytest.mark.skipif(not native.available(), reason=f"the native kernel: {native.why_not()}")
@pytest.mark.parametrize("isa", library.ISAS)
def test_every_instruction_set(isa):
    run_held_to(isa, "native and any_size", __file__)
