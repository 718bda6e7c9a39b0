"""Cells and layers that take the compiled single step: changed, replaced, compiled, in threads."""

import copy
import threading
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from problems import close
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from roann import RoaLayer, RoaRNNCell
from roann.kernels import native, reference
from roann.kernels import step as single
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.linear import Dense
from roann.nn.norm import capped

pytestmark = [
    pytest.mark.skipif(
        single._load() is None,
        reason=f"the native step: {native.why_not() or 'torch has no exchange API'}",
    ),
    pytest.mark.filterwarnings("ignore::roann.HypothesisWarning"),
]
f64 = torch.float64
PLAIN = {"gain": 1.0, "max_norm": None}
LAYERS = {"plain": PLAIN, "default": {}, "capped": {"max_norm": 0.4}}
every_layer = pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)


def cell_and_data(filter="qr", **options):
    g = torch.Generator().manual_seed(0)
    cell = RoaRNNCell(3, 20, alpha=0.3, filter=filter, generator=g, **options)
    return cell, torch.randn(1, 3, generator=g), torch.randn(1, 20, generator=g)


def by_hand(cell, u, x):
    """The next state, from the reference step and the cell's own tensors as they now are."""
    gain, W = cell.gain_of(""), capped(cell.weight_hh, cell.max_norm)
    drive = F.linear(u, cell.weight_ih, cell.bias)
    drive = drive if gain is None else gain * drive
    O = Dense(cell.filter.to_dense().to(x.dtype))
    phi = ACTIVATIONS[cell.nonlinearity]
    return reference.step(x, drive, W, O, cell.alpha, phi)


@every_layer
@pytest.mark.parametrize("filter", ["qr", "permutation", "rotations", "householder", "broad"])
def test_a_cell_may_be_changed_between_calls(filter, options):
    cell, u, x = cell_and_data(filter, **options)
    close(cell(u, x), by_hand(cell, u, x), 20)
    other = RoaRNNCell(3, 20, alpha=0.3, filter=filter, **options)
    cell.load_state_dict(other.state_dict())
    close(cell(u, x), by_hand(other, u, x), 20)
    twin = copy.deepcopy(cell)
    with torch.no_grad():
        cell.weight_hh.mul_(2)
    close(twin(u, x), by_hand(other, u, x), 20)
    close(cell(u, x), by_hand(cell, u, x), 20)
    cell.weight_hh.data = cell.weight_hh.data.mT
    close(cell(u, x), by_hand(cell, u, x), 20)
    cell.weight_hh.data[3] *= -5  # torch counts no version for this
    close(cell(u, x), by_hand(cell, u, x), 20)
    cell.double()
    u, x = u.double(), x.double()
    close(cell(u, x), by_hand(cell, u, x), 20)
    cell.weight_ih = nn.Parameter(torch.ones(20, 3, dtype=f64))
    close(cell(u, x), by_hand(cell, u, x), 20)


@every_layer
def test_what_stands_in_the_place_of_a_parameter_is_used(options):
    cell, u, x = cell_and_data(**options)
    other, _, _ = cell_and_data(**options)
    with torch.no_grad():
        other.weight_hh.neg_()
        other.filter.matrix.copy_(other.filter.matrix.flip(0))
    tensors = dict(other.named_parameters()) | dict(other.named_buffers())
    tensors = {k: v for k, v in tensors.items() if v is not None}
    assert torch.equal(torch.func.functional_call(cell, tensors, (u, x)), other(u, x))
    parametrize.register_parametrization(cell, "weight_hh", nn.Softmax(-1))
    close(cell(u, x), by_hand(cell, u, x), 20)
    cell(u, x).sum().backward()
    assert cell.parametrizations.weight_hh.original.grad is not None
    cell, _, _ = cell_and_data(**options)
    cell.filter.matrix = nn.Parameter(cell.filter.__dict__["_buffers"].pop("matrix"))
    cell(u, x).sum().backward()
    assert cell.filter.matrix.grad is not None


@every_layer
def test_a_learned_alpha_has_its_gradient(options):
    cell, u, x = cell_and_data(learn_rho=True, **options)
    g = torch.randn(1, 20, generator=torch.Generator().manual_seed(2))
    cell(u, x).backward(g)
    got = cell.alpha_logit.grad.clone()
    cell.zero_grad()
    by_hand(cell, u, x).backward(g)
    torch.testing.assert_close(got, cell.alpha_logit.grad)
    with torch.no_grad():
        close(cell(u, x), by_hand(cell, u, x), 20)


@every_layer
def test_a_loop_of_cells_learns_as_the_reference(options):
    """Backward through many steps, with a bias or without, batched or not."""
    for bias in (True, False):
        g = torch.Generator().manual_seed(0)
        cell = RoaRNNCell(2, 7, bias, "tanh", dtype=f64, horizon=10, generator=g, **options)
        for lead in ((), (3,)):
            u = torch.randn(10, *lead, 2, generator=g, dtype=f64)
            found = []
            for step in (cell, partial(by_hand, cell)):
                x0 = x = torch.zeros(*lead, 7, dtype=f64, requires_grad=True)
                for k in range(10):
                    x = step(u[k], x)
                found.append(torch.autograd.grad(x.square().sum(), [x0, *cell.parameters()]))
            for got, want in zip(*found, strict=True):
                close(got, want, 70)


def test_a_square_layer_takes_it_too():
    layer = RoaLayer(12, 12, alpha=0.5, generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 12, generator=torch.Generator().manual_seed(1))
    O = Dense(layer.filter.to_dense())
    want = reference.step(x, layer.bias, layer.weight, O, 0.5, ACTIVATIONS["tanh"])
    close(layer(x), want, 12)


@every_layer
def test_compiled_without_a_break(options):
    cell, u, x = cell_and_data(**options)
    compiled = torch.compile(cell, backend="eager", fullgraph=True)
    close(compiled(u, x), by_hand(cell, u, x), 20)


def capped_cell(seed=0):
    g = torch.Generator().manual_seed(seed)
    cell = RoaRNNCell(2, 7, alpha=0.2, dtype=f64, max_norm=0.4, generator=g)
    return cell, torch.randn(4, 2, generator=g, dtype=f64), torch.randn(7, generator=g, dtype=f64)


def same(got, want):
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-13)


def test_steps_that_share_a_cap_go_back_one_by_one():
    """The steps of one weight share the graph of its cap; each may be differentiated alone."""
    cell, u, x = capped_cell()
    W = cell.weight_hh
    steps = [cell(v, x) for v in u]
    for k in (2, 0, 3, 1):
        (got,) = torch.autograd.grad(steps[k].square().sum(), W)
        same(got, torch.autograd.grad(by_hand(cell, u[k], x).square().sum(), W)[0])
    cell(u[0], cell(u[1], x)).sum().backward()
    cell(u[2], x).sum().backward()
    want = by_hand(cell, u[0], by_hand(cell, u[1], x)).sum() + by_hand(cell, u[2], x).sum()
    same(W.grad, torch.autograd.grad(want, W)[0])


def test_a_weight_changed_before_the_way_back_does_not_change_the_gradient():
    cell, u, x = capped_cell()
    (want,) = torch.autograd.grad(by_hand(cell, u[0], x).sum(), cell.weight_hh)
    y = cell(u[0], x)
    with torch.no_grad():
        cell.weight_hh.copy_(3 * cell.weight_hh.mT.clone())
    same(torch.autograd.grad(y.sum(), cell.weight_hh, retain_graph=True)[0], want)
    with pytest.raises(RuntimeError, match="weight_hh: expected the weight of the step"):
        torch.autograd.grad(y.sum(), cell.weight_hh, create_graph=True)


def test_second_derivatives_through_a_shared_cap():
    cell, u, x = capped_cell()
    found = []
    for step in (cell, partial(by_hand, cell)):
        y = step(u[0], step(u[1], x)).square().sum()
        (slope,) = torch.autograd.grad(y, cell.weight_hh, create_graph=True)
        found.append(torch.autograd.grad(slope.sin().sum(), cell.weight_hh)[0])
    same(*found)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_by_checkpoints_of_torch(reentrant):
    cell, u, x = capped_cell()
    x.requires_grad_()
    found = []
    for step in (cell, partial(checkpoint, cell, use_reentrant=reentrant)):
        y = step(u[0], step(u[1], x))
        cell.zero_grad()
        y.square().sum().backward()
        found.append(cell.weight_hh.grad.clone())
    same(*found)


def test_what_inference_mode_computed_is_not_used_outside():
    cell, u, x = capped_cell()
    cell.requires_grad_(False)
    with torch.inference_mode():
        cell(u[0], x)
    x.requires_grad_()
    got, want = (
        torch.autograd.grad(f(u[0], x).sum(), x)[0] for f in (cell, partial(by_hand, cell))
    )
    same(got, want)


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated
@pytest.mark.parametrize("trace", [torch.jit.trace, lambda f, args: make_fx(f)(*args)])
def test_a_traced_cell_follows_its_weight(trace):
    cell, u, x = capped_cell()
    cell(u[0], x)
    traced = trace(cell, (u[0], x))
    with torch.no_grad():
        cell.weight_hh.copy_(3 * cell.weight_hh.mT.clone())
    same(traced(u[0], x), cell(u[0], x))


def test_several_threads_at_once():
    cells = [RoaRNNCell(2, n, alpha=0.1, dtype=f64) for n in (3, 20, 33, 64)]
    inputs = [
        (torch.randn(1, 2, dtype=f64), torch.randn(1, c.hidden_size, dtype=f64)) for c in cells
    ]
    alone = [c(*i).detach() for c, i in zip(cells, inputs, strict=True)]
    wrong = []

    def work(i):
        for _ in range(200):
            if not torch.equal(cells[i](*inputs[i]), alone[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i % 4,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
