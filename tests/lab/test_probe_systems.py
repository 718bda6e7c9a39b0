"""Every compared system can be probed: its spectrum and its gradients, against plain autograd."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from roann import RoaFNN
from roann.lab import probe as room
from roann.lab.figures.spectra import probed
from roann.lab.figures.style import svg_bytes
from roann.lab.models import MODELS, SequenceModel, build_model
from roann.lab.models.base import Model
from roann.lab.models.deep import KINDS, Deep, DeepConfig
from roann.lab.probe import SEQUENCES, probe
from roann.lab.records import plain
from roann.lab.tasks.adding import Adding, AddingConfig
from roann.lab.tasks.base import Task
from roann.lab.tasks.copying import Copying, CopyingConfig
from roann.lab.tasks.double_moon import DoubleMoon, DoubleMoonConfig

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

DEPTH = [name for name, row in MODELS.items() if row.kind == "depth"]
every_model = pytest.mark.parametrize("name", MODELS)


def made(name: str, length: int = 12, seed: int = 0, config: Any = None) -> tuple[Task, Model]:
    """A small model of a row, on the adding problem or the double moon."""
    task: Task = Adding(AddingConfig(length=length, batch_size=8))
    if MODELS[name].kind == "depth":
        task = DoubleMoon(DoubleMoonConfig(points=20, batch_size=10))
    return task, build_model(name, config or MODELS[name].small, task, seed)


def seen(task: Task, model: Model, seed: int = 0) -> tuple[Model, Tensor, Tensor]:
    """The model, the inputs and the targets as a probe takes them."""
    batch = next(iter(next(iter(task.evaluate_sets(seed, 0).values()))))
    if not any(p.is_complex() for p in model.parameters()):
        model = model.double()
    like = next(model.parameters()).real
    rows = (slice(None), slice(SEQUENCES)) if batch.inputs.dim() == 3 else slice(SEQUENCES)
    return model.eval(), batch.inputs[rows].to(like), batch.targets[:SEQUENCES].to(like)


def product(model: Model, inputs: Tensor) -> Tensor:
    """∂x_M/∂x_0 for the first of the batch, by one backward pass for each of its rows."""
    if isinstance(model, Deep):  # between a map in and a readout
        return torch.autograd.functional.jacobian(model.maps, model.enter(inputs)[0])
    if not isinstance(model, SequenceModel):
        return torch.autograd.functional.jacobian(lambda x: model(x.unsqueeze(0))[0], inputs[0])

    def last(x: Tensor) -> Tensor:
        for u in inputs[:, 0]:
            x = model.system.step(x, u)
        return x

    return torch.autograd.functional.jacobian(last, model.system.initial_state(1)[0])


def assert_spectrum(found: list[float], J: Tensor) -> None:
    """The logarithms found are those of J, as far as the plain way can tell."""
    eps = torch.finfo(J.dtype).eps
    expected, values = torch.linalg.svdvals(J).double(), torch.tensor(found).double()
    assert len(values) == len(expected)
    if not bool(J.any()):
        assert bool((values == -math.inf).all())
        return
    # The plain way is right to eps of the largest value; of a logarithm found there are six digits.
    digits = 6e-6 * expected.log().abs().clamp(max=1e3) * expected
    assert bool(((values.exp() - expected).abs() <= digits + 100 * eps * expected[0]).all())


@every_model
def test_every_system_has_a_spectrum_and_a_gradient_at_every_state(name, caplog):
    task, model = made(name)
    found = probe(task, model, 0)
    assert not caplog.records
    small, steps, states = MODELS[name].small, 12, 1  # one answer, of two inputs
    if name in DEPTH:
        steps = small.maps if name == "deep" else small.layers - 1
        states = small.width if name == "deep" else 1
    else:
        states = model.system.state_size
    assert found["maps"] == steps
    assert len(found["sigma"]) == states
    assert all(s < math.inf for s in found["sigma"])  # neither is any NaN
    assert found["sigma"] == sorted(found["sigma"], reverse=True)
    assert found["gradient_at"] == list(range(steps + 1))
    assert len(found["gradient_by_step"]) == steps + 1
    assert all(0 <= g < math.inf for g in found["gradient_by_step"])
    assert found["gradient_by_step"][-1] > 0
    figure = probed(name, plain({"step": 0} | found), deep=name in DEPTH)
    assert len(figure.axes) == 2
    assert name.encode() in svg_bytes(figure)


@every_model
def test_the_singular_values_are_those_of_an_autograd_jacobian(name):
    length = 3 if name == "dilated-cnn" else 12  # after which its delay lines are empty
    task, model = made(name, length)
    found = probe(task, model, 0)
    model, inputs, _ = seen(task, model)
    assert_spectrum(found["sigma"], product(model, inputs))


@pytest.mark.parametrize("name", [name for name in DEPTH if name != "deep"])
@pytest.mark.parametrize("width", [2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_deep_networks_of_any_width_are_chains_of_their_layers(name, width, seed):
    config = MODELS[name].config(layers=7, width=width, nonlinearity="tanh")
    task, model = made(name, seed=seed, config=config)
    found = probe(task, model, seed)
    assert found["maps"] == 6
    model, inputs, targets = seen(task, model, seed)
    assert_spectrum(found["sigma"], product(model, inputs))
    assert found["sigma"][0] > -math.inf
    leaf = inputs.requires_grad_()
    output = model(leaf)
    grads = torch.autograd.grad(task.loss(output, targets), [leaf, output])
    norms = [float(g.norm()) for g in grads]
    ends = [found["gradient_by_step"][0], found["gradient_by_step"][-1]]
    assert ends == pytest.approx(norms, rel=1e-5)


@pytest.mark.parametrize("kind", ["roa", *KINDS])
@pytest.mark.parametrize("trained", [False, True])
def test_maps_between_a_map_in_and_a_readout_are_followed_alone(kind, trained, caplog):
    """The spectrum is that of the maps; the loss is that of the whole model."""
    task, model = made("deep", config=DeepConfig(kind, 4, 5))
    assert isinstance(model, Deep)
    if trained:  # the readout starts at zero
        torch.nn.init.ones_(model.head.weight)
    found = probe(task, model, 0)
    assert not caplog.records
    assert (found["maps"], len(found["sigma"])) == (4, 5)
    assert ("bound" in found) == (kind == "roa")
    model, inputs, targets = seen(task, model)
    assert_spectrum(found["sigma"], product(model, inputs))
    x = model.enter(inputs).detach().requires_grad_()
    last = model.maps(x)
    torch.testing.assert_close(model.read(last), model(inputs))
    loss = task.loss(model.read(last), targets) if trained else last.sum()
    norms = [float(g.norm()) for g in torch.autograd.grad(loss, [x, last])]
    ends = [found["gradient_by_step"][0], found["gradient_by_step"][-1]]
    assert ends == pytest.approx(norms, rel=1e-5)


def test_a_layer_of_ours_inside_a_model_is_not_taken_for_the_whole():
    class Scaled(Model):
        def __init__(self) -> None:
            super().__init__()
            self.net = RoaFNN([2, 2, 2], generator=torch.Generator().manual_seed(0))

        def forward(self, inputs: Tensor) -> Tensor:
            return self.net(3 * inputs)[..., :1]

    task, model = DoubleMoon(DoubleMoonConfig(points=20, batch_size=10)), Scaled()
    found = probe(task, model, 0)
    assert found["maps"] == 1
    model, inputs, _ = seen(task, model)
    assert_spectrum(found["sigma"], product(model, inputs))


@pytest.mark.parametrize("length", [2, 3, 4, 6, 12])
@pytest.mark.parametrize("seed", [0, 3, 4, 7])
def test_a_dilated_cnn_forgets_exactly(length, seed, caplog):
    """Its lines hold three steps: what came before is exactly zero, spectrum and gradient."""
    task, model = made("dilated-cnn", length, seed)
    found = probe(task, model, seed)
    assert not caplog.records
    model, inputs, _ = seen(task, model, seed)
    assert_spectrum(found["sigma"], product(model, inputs))
    assert all(s == -math.inf for s in found["sigma"]) == (length > 3)
    assert all(g == 0 for g in found["gradient_by_step"][: max(0, length - 3)])


@pytest.mark.parametrize("name", [name for name in MODELS if name not in DEPTH])
def test_the_first_gradient_is_that_of_the_loss_by_the_first_state(name):
    task, model = made(name, 3)
    found = probe(task, model, 0)["gradient_by_step"]
    model, inputs, targets = seen(task, model)
    assert isinstance(model, SequenceModel)
    x = model.system.initial_state(SEQUENCES).detach().requires_grad_()
    last = model.system(inputs, x)[0][-1]
    zero = name == "roa"  # its readout starts at zero
    loss = last.sum() if zero else task.loss(model.head(last), targets)
    (grad,) = torch.autograd.grad(loss, x)
    rtol = 1e-5 if grad.dtype == torch.float64 else 1e-3
    assert found[0] == pytest.approx(float(grad.norm()), rel=rtol, abs=1e-12)


@every_model
def test_of_a_huge_state_every_system_has_the_extreme_values(name, monkeypatch, caplog):
    task, model = made(name, 2)
    whole = probe(task, model, 0)
    monkeypatch.setattr(room, "LARGEST", 0)
    found = probe(task, model, 0)
    assert not caplog.records
    assert "sigma" not in found
    largest = whole["sigma"][0]
    if largest == -math.inf:
        assert found["sigma_max"] == -math.inf
    else:  # ten Krylov steps find it from below
        assert -0.01 < found["sigma_max"] - largest < 1e-5 * max(1, abs(largest))
    smallest = whole["sigma"][-1]
    assert found["sigma_min"] == pytest.approx(smallest, rel=1e-4, abs=0.01)
    assert found["gradient_by_step"] == whole["gradient_by_step"]
    assert len(probed(name, plain({"step": 0} | found)).axes) == 2


def test_where_every_step_is_read_the_gradient_is_that_of_the_last():
    task = Copying(CopyingConfig(lag=4, symbols=2, batch_size=4))
    model = build_model("lstm", MODELS["lstm"].small, task, 0)
    found = probe(task, model, 0)
    assert len(found["gradient_by_step"]) == found["maps"] + 1


def test_a_deep_model_of_an_unknown_kind_is_one_map():
    class Unknown(Model):
        def __init__(self) -> None:
            super().__init__()
            self.W = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs @ self.W.mT

    found = probe(DoubleMoon(DoubleMoonConfig(points=20, batch_size=10)), Unknown(), 0)
    assert found["maps"] == 1
    assert found["sigma"] == pytest.approx([math.log(5)], rel=1e-5)
    first, last = found["gradient_by_step"]
    assert first == pytest.approx(5 * last, rel=1e-5)
