"""Cells and layers that take the compiled single step: changed, replaced, compiled, in threads."""

import copy
import threading
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from problems import close
from torch import nn
from torch.nn.utils import parametrize

from roann import RoaLayer, RoaRNNCell
from roann.kernels import native, reference
from roann.kernels import step as single
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.linear import Dense

pytestmark = [
    pytest.mark.skipif(
        single._load() is None,
        reason=f"the native step: {native.why_not() or 'torch has no exchange API'}",
    ),
    pytest.mark.filterwarnings("ignore::roann.HypothesisWarning"),
]
f64 = torch.float64


def cell_and_data(filter="qr", **options):
    g = torch.Generator().manual_seed(0)
    cell = RoaRNNCell(3, 20, alpha=0.3, filter=filter, generator=g, **options)
    return cell, torch.randn(1, 3, generator=g), torch.randn(1, 20, generator=g)


def by_hand(cell, u, x):
    """The next state, from the reference step and the cell's own tensors as they now are."""
    drive = F.linear(u, cell.weight_ih, cell.bias)
    O = Dense(cell.filter.to_dense().to(x.dtype))
    phi = ACTIVATIONS[cell.nonlinearity]
    return reference.step(x, drive, cell.weight_hh, O, cell.alpha, phi)


@pytest.mark.parametrize("filter", ["qr", "permutation", "rotations", "householder"])
def test_a_cell_may_be_changed_between_calls(filter):
    cell, u, x = cell_and_data(filter)
    close(cell(u, x), by_hand(cell, u, x), 20)
    other = RoaRNNCell(3, 20, alpha=0.3, filter=filter)
    cell.load_state_dict(other.state_dict())
    close(cell(u, x), by_hand(other, u, x), 20)
    twin = copy.deepcopy(cell)
    with torch.no_grad():
        cell.weight_hh.mul_(2)
    close(twin(u, x), by_hand(other, u, x), 20)
    close(cell(u, x), by_hand(cell, u, x), 20)
    cell.weight_hh.data = cell.weight_hh.data.mT
    close(cell(u, x), by_hand(cell, u, x), 20)
    cell.double()
    u, x = u.double(), x.double()
    close(cell(u, x), by_hand(cell, u, x), 20)
    cell.weight_ih = nn.Parameter(torch.ones(20, 3, dtype=f64))
    close(cell(u, x), by_hand(cell, u, x), 20)


def test_what_stands_in_the_place_of_a_parameter_is_used():
    cell, u, x = cell_and_data()
    other, _, _ = cell_and_data()
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
    cell, _, _ = cell_and_data()
    cell.filter.matrix = nn.Parameter(cell.filter.__dict__["_buffers"].pop("matrix"))
    cell(u, x).sum().backward()
    assert cell.filter.matrix.grad is not None


def test_a_learned_alpha_has_its_gradient():
    cell, u, x = cell_and_data(learn_rho=True)
    g = torch.randn(1, 20, generator=torch.Generator().manual_seed(2))
    cell(u, x).backward(g)
    got = cell.alpha_logit.grad.clone()
    cell.zero_grad()
    by_hand(cell, u, x).backward(g)
    torch.testing.assert_close(got, cell.alpha_logit.grad)
    with torch.no_grad():
        close(cell(u, x), by_hand(cell, u, x), 20)


def test_a_loop_of_cells_learns_as_the_reference():
    """Backward through many steps, with a bias or without, batched or not."""
    for bias in (True, False):
        g = torch.Generator().manual_seed(0)
        cell = RoaRNNCell(2, 7, bias, "tanh", dtype=f64, horizon=10, generator=g)
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


def test_compiled_without_a_break():
    cell, u, x = cell_and_data()
    compiled = torch.compile(cell, backend="eager", fullgraph=True)
    close(compiled(u, x), by_hand(cell, u, x), 20)


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
