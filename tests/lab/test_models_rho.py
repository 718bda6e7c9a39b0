"""The roaRNN of the lab with a vector or learned ρ: its start, its rates, its config."""

import dataclasses
from dataclasses import dataclass

import pytest
import torch

from paper import plan
from roann.lab.config import parse, read_text, to_toml
from roann.lab.models import build_model
from roann.lab.models.roa import EyeRnnConfig, RoaRnnConfig
from roann.lab.tasks.adding import Adding, AddingConfig
from roann.lab.train import make_optimizer

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")


@dataclass(frozen=True)
class Asked:
    input_size: int = 2
    output_size: int = 1
    horizon: int = 100
    readout: str = "last"


def build(name="roa-rnn", **kw):
    kind = RoaRnnConfig if name == "roa-rnn" else EyeRnnConfig
    return build_model(name, kind(8, rho=0.5, **kw), Asked(), seed=3)


@pytest.mark.parametrize("name", ["roa-rnn", "eye-rnn"])
def test_kinds_of_rho_start_alike(name):
    """One number, equal numbers, or learned ones: the same network at first; the same weights."""
    u = torch.randn(20, 3, 2, generator=torch.Generator().manual_seed(0))
    plain = build(name)
    vector = {"rho_vector": "equal"}
    for kw in (vector, {"learn_rho": 0.1}, vector | {"learn_rho": 1.0}):
        other = build(name, **kw)
        torch.testing.assert_close(other(u), plain(u), rtol=1e-5, atol=1e-6)
        for key, value in plain.named_parameters():
            assert torch.equal(other.get_parameter(key), value)
    learned = [{"learn_rho": 0.1}, {"rho_vector": "equal", "learn_rho": 0.1}]
    counts = [build(name, **kw).effective_parameters() for kw in learned]
    assert [n - plain.effective_parameters() for n in counts] == [1, 8]


def test_multiscale_is_centred_on_the_scalar():
    alpha = build(rho_vector="multiscale", spread=4.0).system.rnn.alpha
    torch.testing.assert_close(alpha[[0, -1]], torch.tensor([4 / 200, 1 / 800]))
    torch.testing.assert_close(alpha.log().mean().exp(), torch.tensor(1 / 200))
    steep = build(rho_vector="multiscale", spread=1e4).system.rnn.alpha
    assert float(steep.max()) == 0.5  # two steps at least


def test_a_learned_rho_has_a_rate_of_its_own():
    model = build(rho_vector="equal", learn_rho=0.04)
    experiment = parse(read_text('[task]\nname = "adding"\n[model]\nname = "roa-rnn"\n'))
    optimizer = make_optimizer(model, dataclasses.replace(experiment.train, lr=0.5))
    by_scale = {group["scale"]: group["params"] for group in optimizer.param_groups}
    assert set(by_scale) == {1.0, 0.04}
    assert by_scale[0.04] == [model.system.rnn.alpha_logit_l0]


def test_a_step_of_training_moves_alpha():
    model = build(learn_rho=0.1)
    task = Adding(AddingConfig(length=20, batch_size=4))
    batch = task.batch(0, 0)
    task.loss(model(batch.inputs), batch.targets).backward()
    assert float(model.system.rnn.alpha_logit_l0.grad.abs()) > 0


def test_configs_without_it_keep_their_name():
    """Fields that are not used are left out, so directories of runs stay what they are."""
    tables = {"task": {"name": "adding"}, "model": {"name": "roa-rnn"}}
    text = to_toml(parse(tables).tables())
    assert "learn_rho" not in text
    assert "rho_vector" not in text
    tables["model"] |= {"rho_vector": "multiscale", "spread": 5.0, "learn_rho": 0.04}
    experiment = parse(tables)
    assert parse(read_text(to_toml(experiment.tables()))) == experiment


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"spread": 3.0}, "spread: expected nothing without rho_vector"),
        ({"rho_vector": "multi"}, "did you mean 'multiscale'"),
        ({"learn_rho": 0}, "learn_rho: expected a number"),
        ({"rho_vector": "multiscale", "spread": 0.5}, "spread: expected a number from 1"),
    ],
)
def test_bad_settings(settings, match):
    with pytest.raises(ValueError, match=match):
        RoaRnnConfig(**settings)


def test_every_arm_of_the_study_can_be_built():
    horizons = {"adding": 400, "copying": 160, "psmnist": 784}
    for scale in ("quick", "full"):
        for cell in plan.experiments("rho-kinds", scale).values():
            task = Asked(horizon=50 if scale == "quick" else horizons[cell.task_name])
            assert build_model(cell.model_name, cell.model, task, 0).effective_parameters() > 0
