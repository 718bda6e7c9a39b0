"""How a compared system is made and called as a plain module: dtypes, generators, wrong shapes."""

import dataclasses
import importlib
import pkgutil

import pytest
import torch
from given_weights import noise, rng

from roann.lab import models
from roann.lab.models.base import Model, Row, SequenceSystem
from roann.lab.models.recurrence import DrivenSystem, scan

PAPER = {"roa", "deep"}  # made by another door


def rows() -> dict[str, tuple[Row, type]]:
    """Every row of a compared system, with the class its settings belong to."""
    found = {}
    for info in pkgutil.iter_modules(models.__path__):
        if info.name in PAPER:
            continue
        module = importlib.import_module(f"{models.__name__}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, Row):
                name = value.config.__name__.removesuffix("Config")
                found[name] = (value, getattr(module, name))
    return found


ROWS = rows()
SEQUENCES = [name for name, (row, _) in ROWS.items() if row.kind == "sequence"]
HORIZON = {"horizon": 7, "theta": 7.0, "max_length": 7}


def make(name: str, generator: torch.Generator | None, **factory):
    row, cls = ROWS[name]
    small = row.small
    for field in dataclasses.fields(small):
        if field.name in HORIZON and getattr(small, field.name) is None:
            small = dataclasses.replace(small, **{field.name: HORIZON[field.name]})
    first = 2 if row.kind == "sequence" else [2, 3, 3, 3, 1]
    return cls(first, small, generator, **factory)


def test_every_compared_system_is_in_the_table():
    assert {id(row) for row, _ in ROWS.values()} <= {id(row) for row in models.MODELS.values()}
    assert len(ROWS) == 28


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_made_and_run_in_the_asked_dtype(name, dtype):
    module = make(name, rng(), dtype=dtype)
    for key, value in module.state_dict().items():
        if value.is_floating_point():
            assert value.dtype == dtype, key
    assert isinstance(module, SequenceSystem | Model)
    if isinstance(module, SequenceSystem):
        output, state = module(noise(5, 3, 2).to(dtype))
        assert output.dtype == state.dtype == dtype
        assert module.last(noise(5, 3, 2).to(dtype)).dtype == dtype
    else:
        assert module(noise(5, 2).to(dtype)).dtype == dtype


@pytest.mark.parametrize("name", ROWS)
def test_without_a_generator_torch_s_own_is_drawn_from(name):
    def drawn(seed):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return make(name, None).state_dict()

    one, same, other = drawn(1), drawn(1), drawn(2)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", SEQUENCES)
def test_inputs_and_states_that_do_not_fit_are_refused(name):
    system = make(name, rng())
    S = system.state_size
    for bad in ((5, 2), (0, 3, 2), (5, 3, 4)):
        with pytest.raises(ValueError, match=r"u: expected shape \(T ≥ 1, B, 2\), got"):
            system(torch.zeros(bad))
        with pytest.raises(ValueError, match="u: expected shape"):
            system.last(torch.zeros(bad))
    for bad in ((2, S), (3, S + 1), (S,)):
        with pytest.raises(ValueError, match=rf"state: expected shape \(3, {S}\), got"):
            system(torch.zeros(5, 3, 2), torch.zeros(bad))


def test_scan_is_the_loop_it_says():
    d, x = noise(4, 2, 3), noise(2, 3, seed=1)
    states, h = [], x
    for k in range(4):
        h = 0.5 * h + d[k]
        states.append(h)
    assert torch.equal(scan(lambda h, d: 0.5 * h + d, d, x), torch.stack(states))


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_next_sequence_sees_what_changed_in_place(name):
    system, other = (make(name, rng(seed), dtype=torch.float64).eval() for seed in (0, 1))
    u = noise(5, 3, 2)
    state = system(noise(4, 3, 2, seed=1))[1].detach()

    def seen(module):
        return [*module(u, state), module.last(u, state), module.step(state, u[0])]

    seen(other)
    for key, p in system.named_parameters():
        before = seen(system)
        with torch.no_grad():
            p += 0.3 * torch.rand(p.shape, generator=rng(2), dtype=p.dtype)  # up: ReLUs live
        after = seen(system)
        if not key.endswith(("h_0", "x_0")):  # a first state is given here
            change = [(a - b).abs().max() for a, b in zip(after, before, strict=True)]
            assert max(change) > 1e-9, key
        other.load_state_dict(system.state_dict())
        for found, wanted in zip(seen(other), after, strict=True):
            assert torch.equal(found, wanted), key
    fresh = make(name, rng(), dtype=torch.float64).eval()  # has never seen the old values
    fresh.load_state_dict(system.state_dict())
    for found, wanted in zip(seen(fresh), seen(system), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", ["ExpRnn", "Lmu", "CoRnn"])
def test_parameters_are_prepared_once_per_sequence(name, monkeypatch):
    system = make(name, rng())
    assert isinstance(system, DrivenSystem)
    calls = []
    prepare = system.transition
    monkeypatch.setattr(system, "transition", lambda: calls.append(1) or prepare())
    system(torch.zeros(50, 2, 2))
    system.last(torch.zeros(50, 2, 2))
    assert len(calls) == 2
