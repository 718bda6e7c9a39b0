"""What every row of the table of models promises; a new system inherits all of it."""

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.func import jacrev, vmap

from roann.lab.config import ConfigError, parse
from roann.lab.models import MODELS, SequenceModel, SequenceSystem, build_model
from roann.lab.models.base import count_parameters
from roann.lab.tasks.adding import Adding, AddingConfig
from roann.lab.tasks.copying import Copying, CopyingConfig
from roann.lab.tasks.double_moon import DoubleMoon, DoubleMoonConfig

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

T, B = 5, 3


@dataclass(frozen=True)
class Asked:
    input_size: int
    output_size: int
    horizon: int | None
    readout: Any


TASKS = {
    "copying": Copying(CopyingConfig()),
    "adding": Adding(AddingConfig()),
    "psmnist": Asked(1, 10, 784, "last"),
    "smnist": Asked(1, 10, 784, "last"),
    "double-moon": DoubleMoon(DoubleMoonConfig()),
}
SEQUENCES = [name for name, row in MODELS.items() if row.kind == "sequence"]


def demand(name: str, readout: str = "all") -> Asked:
    if MODELS[name].kind == "depth":
        return Asked(2, 3, None, "none")
    return Asked(2, 3, T, readout)


def build(name: str, seed: int = 0, readout: str = "all"):
    return build_model(name, MODELS[name].small, demand(name, readout), seed)


def system_of(name: str) -> SequenceSystem:
    model = build(name)
    assert isinstance(model, SequenceModel)
    return model.system.double().eval()


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def lived_in(system: SequenceSystem, batch: int = B) -> torch.Tensor:
    """A state the system really reaches: not every vector need be one."""
    return system(noise(4, batch, 2, seed=1))[1].detach()


def sequence_inputs(name: str) -> torch.Tensor:
    return noise(T, B, 2) if name in SEQUENCES else noise(B, 2)


every_model = pytest.mark.parametrize("name", MODELS)
every_sequence = pytest.mark.parametrize("name", SEQUENCES)


@every_sequence
@pytest.mark.parametrize("given", [False, True], ids=["from rest", "from a state"])
def test_forward_is_the_scan_of_step(name, given):
    system = system_of(name)
    u = noise(T, B, 2)
    x = lived_in(system) if given else system.initial_state(B)
    assert x.shape == (B, system.state_size)
    output, last = system(u, x if given else None)
    states = []
    for k in range(T):
        x = system.step(x, u[k])
        states.append(x)
    torch.testing.assert_close(output, system.read(torch.stack(states)))
    torch.testing.assert_close(last, states[-1])
    assert output.shape == (T, B, system.output_size)


@every_sequence
def test_a_sequence_may_be_cut_anywhere(name):
    system = system_of(name)
    u = noise(T, B, 2)
    whole, end = system(u)
    first, middle = system(u[:2])
    second, last = system(u[2:], middle)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(last, end)


@every_sequence
def test_last_is_the_last_output_in_value_and_gradient(name):
    system = system_of(name)
    u = noise(T, B, 2).requires_grad_()
    weight = noise(B, system.output_size, seed=2)
    inputs = [u, *(p for p in system.parameters() if p.requires_grad)]
    found, wanted = system.last(u), system(u)[0][-1]
    torch.testing.assert_close(found, wanted)
    for a, b in zip(
        torch.autograd.grad((found * weight).sum(), inputs, allow_unused=True),
        torch.autograd.grad((wanted * weight).sum(), inputs, allow_unused=True),
        strict=True,
    ):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            torch.testing.assert_close(a, b)


@every_sequence
def test_step_takes_any_leading_shape(name):
    system = system_of(name)
    x, u = lived_in(system), noise(B, 2)
    wanted = system.step(x, u)
    torch.testing.assert_close(system.step(x[1], u[1]), wanted[1])
    doubled = system.step(torch.stack([x, x]), torch.stack([u, u]))
    torch.testing.assert_close(doubled, torch.stack([wanted, wanted]))


@every_sequence
def test_the_jacobian_of_a_step_by_torch_func_is_that_of_differences(name):
    system = system_of(name)
    x, u = lived_in(system), noise(B, 2)
    J = vmap(jacrev(system.step))(x, u)
    assert J.shape == (B, system.state_size, system.state_size)
    eps = 1e-6
    shifts = eps * torch.eye(system.state_size, dtype=torch.float64)
    for i in range(B):
        ahead = system.step(x[i] + shifts, u[i].expand(len(shifts), -1))
        behind = system.step(x[i] - shifts, u[i].expand(len(shifts), -1))
        differences = ((ahead - behind) / (2 * eps)).T.detach()
        torch.testing.assert_close(J[i], differences, rtol=1e-6, atol=1e-7)


@every_model
def test_gradcheck_of_inputs_and_every_parameter(name):
    model = build(name).double().eval()
    inputs = sequence_inputs(name)[..., :2, :].requires_grad_()
    trained = tuple(p for p in model.parameters() if p.requires_grad)
    # gradcheck moves its arguments in place; the model reads the very same tensors.
    assert torch.autograd.gradcheck(lambda *_: model(inputs), (inputs, *trained))
    gradients = torch.autograd.grad(model(inputs).sum(), trained, allow_unused=True)
    assert any(g is not None and bool(g.abs().max() > 0) for g in gradients)


@every_sequence
def test_gradcheck_of_the_first_state(name):
    system = system_of(name)
    x = lived_in(system, 2).requires_grad_()
    u = noise(3, 2, 2)
    assert torch.autograd.gradcheck(lambda x: system(u, x), (x,))


def tensors(model):
    return {k: v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)}


@every_model
def test_a_model_is_a_function_of_its_seed(name):
    before = torch.random.get_rng_state()
    first = tensors(build(name, seed=3))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(12)
    again, other = tensors(build(name, seed=3)), tensors(build(name, seed=4))
    assert list(first) == list(again) == list(other)
    for key in first:
        assert torch.equal(first[key], again[key]), key
    assert any(not torch.equal(first[key], other[key]) for key in first)


@every_model
def test_parameters_are_finite_numbers_in_single_precision(name):
    for key, value in tensors(build(name)).items():
        if value.is_floating_point():
            assert value.dtype == torch.float32, key
            assert bool(value.isfinite().all()), key


@every_model
def test_state_dict_carries_the_whole_model(name):
    first, other = build(name, seed=0).eval(), build(name, seed=1).eval()
    if name in ("roa", "deep"):  # a readout that starts at zero
        for model in (first, other):
            torch.nn.init.ones_(model.head.weight)
    inputs = sequence_inputs(name).float()
    assert not torch.equal(first(inputs), other(inputs))
    other.load_state_dict(first.state_dict())
    assert torch.equal(first(inputs), other(inputs))


@every_model
def test_predictions_have_the_task_s_shape_and_reach_every_parameter(name):
    inputs = sequence_inputs(name).float()
    model = build(name)
    prediction = model(inputs)
    assert prediction.shape == (*inputs.shape[:-1], 3)
    prediction.square().sum().backward()
    missing = [key for key, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []
    if name in SEQUENCES:
        assert build(name, readout="last").eval()(inputs).shape == (B, 3)


@every_sequence
def test_the_last_readout_is_the_last_row_of_all(name):
    every, last = build(name).double().eval(), build(name, readout="last").double().eval()
    inputs = sequence_inputs(name)
    torch.testing.assert_close(last(inputs), every(inputs)[-1])


def test_a_head_of_several_reads_sees_states_at_even_distances():
    row = MODELS["roa"]
    config = dataclasses.replace(row.small, reads=3, readout=4)
    model = build_model("roa", config, demand("roa", "last"), 0).double().eval()
    assert isinstance(model, SequenceModel)
    torch.nn.init.normal_(model.head[-1].weight, generator=torch.Generator().manual_seed(0))
    u = noise(8, B, 2)
    states = model.system(u)[0]
    seen = torch.cat([states[1], states[4], states[7]], -1)  # 8/3, 16/3 and 8 steps, rounded down
    torch.testing.assert_close(model(u), model.head(seen))
    H = model.system.output_size
    own = model.system.effective_parameters()
    assert model.effective_parameters() == own + (3 * H + 1) * 4 + (4 + 1) * 3
    with pytest.raises(ValueError, match="inputs: expected at least 3 steps"):
        model(u[:2])
    with pytest.raises(ValueError, match="reads: expected 1 for a task with an answer at every"):
        build_model("roa", config, demand("roa", "all"), 0)
    with pytest.raises(ValueError, match=f"reads: expected at most {T}, the steps of the task"):
        build_model("roa", dataclasses.replace(config, reads=T + 1), demand("roa", "last"), 0)


@every_model
def test_effective_parameters_never_exceed_the_stored_ones(name):
    model = build(name)
    assert 0 < model.effective_parameters() <= count_parameters(model)
    if isinstance(model, SequenceModel):
        own = model.system.effective_parameters()
        H = model.system.output_size
        assert model.effective_parameters() == own + H * 3 + 3


@every_model
def test_scales_name_parameters_and_a_penalty_is_a_number(name):
    model = build(name)
    names = dict(model.named_parameters())
    for key, scale in model.learning_rate_scales().items():
        assert key in names
        assert scale > 0
    penalty = model.penalty()
    if penalty is not None:
        assert penalty.shape == ()
        penalty.backward()


PUBLISHED = tomllib.loads((Path(__file__).parents[2] / "paper/published.toml").read_text())
every_published = pytest.mark.parametrize(
    ("name", "row"), [(name, row) for name, rows in PUBLISHED.items() for row in rows]
)


@every_published
def test_published_settings_are_the_words_of_an_experiment(name, row):
    assert row.keys() <= {"task", "settings", "parameters", "train"}
    train = dict(row.get("train", {}))
    B, epochs = train.pop("batch_size", 100), train.pop("epochs", None)
    if epochs is not None:
        train |= {"unit": "epoch", "length": epochs}
    task = {"name": row["task"], "batch_size": B}
    tables = {"task": task, "model": {"name": name} | row["settings"], "train": train}
    if row["task"] == "psmnist" and 60_000 % B:
        with pytest.raises(ConfigError, match=rf"batch_size.*divisor of 60000.*{B}"):
            parse(tables)
        task["batch_size"] = B = 100
    made = parse(tables)
    assert made.task.batch_size == B
    for key, value in train.items():
        assert getattr(made.train, key) == value


@every_published
def test_published_settings_have_the_published_count(name, row):
    config = MODELS[name].config(**row["settings"])
    model = build_model(name, config, TASKS[row["task"]], seed=0)
    if "parameters" in row:
        assert model.effective_parameters() == row["parameters"]


@every_model
def test_settings_are_frozen_strict_and_capped(name):
    row = MODELS[name]
    config = row.config()
    for field in dataclasses.fields(config):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config, field.name, getattr(config, field.name))
        value = getattr(config, field.name)
        for bad in [None] if isinstance(value, str) else []:
            with pytest.raises(ValueError, match=field.name):
                row.config(**{field.name: bad})
        if isinstance(value, bool):
            continue
        if isinstance(value, int):
            for bad in (0, -1, 10**12, 2.5, True, "5"):
                with pytest.raises(ValueError, match=field.name):
                    row.config(**{field.name: bad})
        if isinstance(value, float):
            for bad in (float("nan"), float("inf"), True, "0.5"):
                with pytest.raises(ValueError, match=field.name):
                    row.config(**{field.name: bad})


def test_a_depth_model_for_a_sequence_task_is_refused_with_those_that_fit():
    with pytest.raises(ValueError, match=r"a sequence model.*'fnn'.*roa-rnn"):
        build_model("fnn", MODELS["fnn"].small, TASKS["adding"], 0)
    with pytest.raises(ValueError, match=r"a feed-forward model.*'lstm'.*roa-fnn"):
        build_model("lstm", MODELS["lstm"].small, TASKS["double-moon"], 0)


def test_an_unknown_name_and_a_foreign_config_are_refused():
    with pytest.raises(ValueError, match="did you mean 'roa-rnn'"):
        build_model("roarnn", MODELS["roa-rnn"].small, TASKS["adding"], 0)
    with pytest.raises(ValueError, match=r"a RoaRnnConfig for model 'roa-rnn'.*EyeRnnConfig"):
        build_model("roa-rnn", MODELS["eye-rnn"].small, TASKS["adding"], 0)
