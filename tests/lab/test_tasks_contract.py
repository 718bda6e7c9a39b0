"""What every task promises: purity, shapes, scores, and settings that check themselves."""

import dataclasses
import subprocess
import sys

import pytest
import torch
from made_problems import recordings, write_problem
from torch import Tensor
from torch.nn.functional import one_hot

from roann.lab import data, fsdd
from roann.lab.streams import generator
from roann.lab.tasks import TASKS, Batch, mean_scores
from roann.lab.tasks.adding import Adding, AddingConfig
from roann.lab.tasks.copying import BLANK, Copying, CopyingConfig
from roann.lab.tasks.double_moon import DoubleMoon, DoubleMoonConfig
from roann.lab.tasks.mnist import (
    FlatMnist,
    MnistConfig,
    PsMnistConfig,
    SequentialMnist,
    SMnistConfig,
)
from roann.lab.tasks.series import Archive, ArchiveConfig, DigitsConfig, SpokenDigits

SMALL = {
    "copying": lambda: Copying(CopyingConfig(lag=7, symbols=3, batch_size=4, eval_batches=2)),
    "adding": lambda: Adding(AddingConfig(length=9, batch_size=4, eval_batches=2)),
    "double-moon": lambda: DoubleMoon(DoubleMoonConfig(points=40, batch_size=8)),
}


DIGITS = {
    "psmnist": lambda: SequentialMnist(PsMnistConfig(batch_size=8)),
    "smnist": lambda: SequentialMnist(SMnistConfig(batch_size=8)),
    "mnist": lambda: FlatMnist(MnistConfig(batch_size=8)),
}


@pytest.fixture(params=TASKS)
def any_task(request, monkeypatch, tmp_path):
    """Every task of the table, on drawn data: the real ones may be absent."""
    rng = torch.Generator().manual_seed(0)
    images = torch.randint(256, (80, 28, 28), generator=rng, dtype=torch.uint8)
    labels = torch.randint(10, (80,), generator=rng, dtype=torch.uint8)
    monkeypatch.setattr(data, "load_mnist", lambda folder: (images, labels, images, labels))
    monkeypatch.setattr(fsdd, "load_fsdd", lambda folder: recordings())
    write_problem(tmp_path)
    series = {
        "ucr": lambda: Archive(ArchiveConfig(problem="Made", batch_size=4, data_dir=str(tmp_path))),
        "digits": lambda: SpokenDigits(DigitsConfig(batch_size=4)),
    }
    return (SMALL | DIGITS | series)[request.param]()


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_the_parts_of_all_ranks_are_the_global_batch(any_task, world):
    for seed, step in ((0, 0), (5, 3), (5, 11)):
        wanted = any_task.global_batch(seed, step)
        parts = [any_task.batch(seed, step, rank, world) for rank in range(world)]
        along = 1 if any_task.readout == "all" else 0
        inputs = torch.cat([part.inputs for part in parts], -2)
        assert same(Batch(inputs, torch.cat([part.targets for part in parts], along)), wanted)
        sizes = [part.examples for part in parts]
        assert sum(sizes) == any_task.batch_size
        assert max(sizes) - min(sizes) == (any_task.batch_size % world > 0)
        for part in parts:
            assert part.targets.shape[along] == part.examples
    assert same(any_task.batch(5, 3), any_task.batch(5, 3, 0, 1))


@pytest.mark.parametrize(
    ("rank", "world", "said"),
    [(1, 1, "rank"), (-1, 2, "rank"), (2, 2, "rank"), (0, 0, "world"), (0, 9, "world"),
     (0, 2.0, "world"), (True, 2, "rank")],
)  # fmt: skip
def test_a_rank_that_has_no_part_is_refused(make, rank, world, said):
    with pytest.raises(ValueError, match=f"{said}: expected a whole number from"):
        make().batch(0, 0, rank, world)


@pytest.mark.parametrize("world", [2, 3])
def test_gradients_of_the_parts_add_up_to_that_of_the_global_batch(make, world):
    task = make()
    batch = task.global_batch(1, 2)
    shape, rng = (task.input_size, task.output_size), torch.Generator().manual_seed(0)
    weight = torch.randn(shape, dtype=torch.float64, generator=rng)

    def gradient(part: Batch) -> torch.Tensor:
        W = weight.clone().requires_grad_()
        prediction = part.inputs.double() @ W
        prediction = prediction[-1] if task.readout == "last" else prediction
        targets = part.targets
        loss = task.loss(prediction, targets.double() if targets.is_floating_point() else targets)
        (found,) = torch.autograd.grad(loss, W)
        return found * part.examples / task.batch_size

    parts = [task.batch(1, 2, rank, world) for rank in range(world)]
    torch.testing.assert_close(sum(gradient(part) for part in parts), gradient(batch))


@pytest.fixture(params=SMALL)
def make(request):
    return SMALL[request.param]


def same(a: Batch, b: Batch) -> bool:
    return torch.equal(a.inputs, b.inputs) and torch.equal(a.targets, b.targets)


def test_the_table_has_the_paper_s_tasks_and_defaults_build_configs():
    assert list(TASKS) == [
        "double-moon", "copying", "adding", "psmnist", "smnist", "ucr", "digits", "mnist"
    ]  # fmt: skip
    for row in TASKS.values():
        config = row.config()
        with pytest.raises(dataclasses.FrozenInstanceError):
            config.batch_size = 3


def test_a_batch_depends_on_seed_and_step_alone(make):
    task, other = make(), make()
    wanted = [task.batch(5, step) for step in range(12)]
    torch.manual_seed(1)
    for step in reversed(range(12)):
        torch.rand(3)
        assert same(other.batch(5, step), wanted[step])


def test_the_global_random_state_is_neither_used_nor_moved(make):
    before = torch.random.get_rng_state()
    task = make()
    task.batch(0, 0)
    for batches in task.evaluate_sets(0, 0).values():
        list(batches)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_other_steps_and_other_seeds_give_other_batches(make):
    task = make()
    assert not same(task.batch(0, 0), task.batch(0, 1))
    assert not same(task.batch(0, 0), task.batch(1, 0))
    assert not same(task.batch(0, 1), task.batch(1, 0))


def test_shapes_are_those_of_the_contract(make):
    task = make()
    batch = task.batch(0, 0)
    assert batch.examples == task.batch_size
    assert batch.inputs.dtype == torch.float32
    assert batch.inputs.shape[-1] == task.input_size
    assert batch.inputs.dim() == (2 if task.readout == "none" else 3)
    lead = batch.inputs.shape[:2] if task.readout == "all" else (task.batch_size,)
    prediction = torch.zeros(*lead, task.output_size, requires_grad=True)
    loss = task.loss(prediction, batch.targets)
    loss.backward()
    assert prediction.grad is not None
    scores = task.scores(prediction, batch.targets)
    assert scores.keys() == task.trivial.keys()
    assert task.primary in scores
    assert next(iter(scores)) in ("mse", "cross_entropy")
    assert next(iter(scores.values())) == loss.item()


def recalled(task: Copying, inputs: Tensor) -> Tensor:
    """A log-probability of 0 for what is right."""
    codes = inputs.argmax(-1) if task.config.encoding == "one-hot" else inputs[..., 0].long()
    answer = torch.full_like(codes, BLANK)
    answer[-task.config.symbols :] = codes[: task.config.symbols]
    return torch.where(one_hot(answer, task.output_size) > 0, 0.0, -torch.inf)


def added(task: Adding, inputs: Tensor) -> Tensor:
    return (inputs[..., 0] * inputs[..., 1]).sum(0).unsqueeze(-1)


def nearer_moon(task: DoubleMoon, inputs: Tensor) -> Tensor:
    """The label of the moon whose middle line is nearer: perfect if the moons do not touch."""

    def off_middle(x: Tensor) -> Tensor:
        return torch.where(x[:, 1] >= 0, (x.norm(dim=-1) - r).abs(), torch.inf)

    r, d = task.config.radius, task.config.distance
    lower = off_middle(inputs.new_tensor([r, -d]) - inputs)
    return torch.where(off_middle(inputs) < lower, -1.0, 1.0).unsqueeze(-1)


# The perfect prediction of each task, from the inputs alone.
ORACLES = {"copying": recalled, "adding": added, "double-moon": nearer_moon}


def test_the_oracle_is_perfect_in_training_and_evaluation(make):
    task = make()
    sets = task.evaluate_sets(3, 17)
    batches = [task.batch(3, step) for step in range(5)] + [b for s in sets.values() for b in s]
    assert len(batches) == (6 if task.readout == "none" else 7)
    for batch in batches:
        scores = task.scores(ORACLES[task.name](task, batch.inputs), batch.targets)
        for name, value in scores.items():
            assert value == (1.0 if name.endswith("accuracy") else 0.0), name


@pytest.mark.parametrize("name", ["copying", "adding"])
def test_evaluation_batches_are_fresh(name):
    task = SMALL[name]()
    first, second = task.evaluate_sets(0, 0)["eval"]
    later, _ = task.evaluate_sets(0, 1)["eval"]
    again, _ = task.evaluate_sets(0, 0)["eval"]
    assert same(first, again)
    for other in (second, later, task.batch(0, 0), task.batch(0, 1)):
        assert not same(first, other)


@pytest.mark.parametrize(
    ("config", "changes", "said"),
    [
        (CopyingConfig, {"lag": 0}, "lag"),
        (CopyingConfig, {"lag": 10**9}, "lag"),
        (CopyingConfig, {"lag": 4.0}, "lag"),
        (CopyingConfig, {"lag": True}, "lag"),
        (CopyingConfig, {"symbols": 0}, "symbols"),
        (CopyingConfig, {"batch_size": "128"}, "batch_size"),
        (CopyingConfig, {"layout": "papers"}, "did you mean 'paper'"),
        (CopyingConfig, {"encoding": "onehot"}, "did you mean 'one-hot'"),
        (CopyingConfig, {"eval_batches": 0}, "eval_batches"),
        (AddingConfig, {"length": 1}, "length"),
        (AddingConfig, {"markers": "half"}, "markers"),
        (AddingConfig, {"batch_size": 0}, "batch_size"),
        (DoubleMoonConfig, {"points": 999}, "points"),
        (DoubleMoonConfig, {"batch_size": 300}, "batch_size"),
        (DoubleMoonConfig, {"width": 21.0}, "width"),
        (DoubleMoonConfig, {"radius": float("nan")}, "radius"),
        (DoubleMoonConfig, {"distance": float("inf")}, "distance"),
        (DoubleMoonConfig, {"data_seed": -1}, "data_seed"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(config, changes, said):
    with pytest.raises(ValueError, match=said):
        config(**changes)


def test_scores_of_a_set_weigh_batches_by_their_examples():
    parts = [({"mse": 1.0, "accuracy": 0.0}, 30), ({"mse": 4.0, "accuracy": 1.0}, 10)]
    assert mean_scores(parts) == {"mse": 1.75, "accuracy": 0.25}


def test_streams_do_not_touch_each_other():
    keys = [(0,), (1,), (0, "a"), (0, "b"), (0, "a", 1), (0, "a", 2), (0, "a1"), (0, "a", "1")]
    drawn = [torch.rand(4, generator=generator(*key)) for key in keys]
    for i, a in enumerate(drawn):
        for b in drawn[:i]:
            assert not torch.equal(a, b)


def test_a_stream_is_the_same_in_another_process():
    # Python salts hash() in every process; a stream must not depend on it.
    code = (
        "import torch; from roann.lab.streams import generator;"
        "print(torch.randint(2**62, (2,), generator=generator(3, 'data', 7)).tolist())"
    )
    here = torch.randint(2**62, (2,), generator=generator(3, "data", 7)).tolist()
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == str(here)
