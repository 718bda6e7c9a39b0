"""Who is called when, how often, and what is refused. Nothing here looks at how long it took."""

import gc

import pytest
import torch

from benchmarks.timing import Contender, race


def noting(name, calls, result=None, **options):
    def run():
        calls.append(name)
        return result

    return Contender(name, run, **options)


def test_contenders_take_turns_and_each_round_is_begun_by_another():
    calls = []
    found = race([noting(n, calls) for n in "abc"], rounds=4, sample_seconds=0.0)
    warm_up, rounds = calls[:6], calls[6:]
    assert warm_up == list("aabbcc")
    # Twice each: the first call of a sample does not count.
    assert rounds == [name for name in "abcbcacababc" for _ in range(2)]
    assert {name: len(timed.samples) for name, timed in found.items()} == {"a": 4, "b": 4, "c": 4}


def test_a_sample_of_something_short_is_the_mean_of_many_calls():
    calls = []
    found = race([noting("a", calls)], rounds=2, sample_seconds=1e-3)
    assert found["a"].calls > 1
    assert len(calls) == 2 + 2 * (1 + found["a"].calls)


def test_one_without_budget_is_timed_once_while_others_go_on(monkeypatch):
    monkeypatch.setattr("benchmarks.timing.BUDGET_SECONDS", 0.0)
    calls = []
    found = race([noting("a", calls)], rounds=5, sample_seconds=0.0)
    assert len(found["a"].samples) == 1


def test_garbage_is_not_collected_within_a_sample_but_afterwards():
    seen = []
    race([Contender("a", lambda: seen.append(gc.isenabled()))], rounds=1, sample_seconds=0.0)
    assert seen == [True, False, True, False]
    assert gc.isenabled()


def test_results_that_must_agree_are_compared():
    x = torch.tensor([3.0, 4.0])
    near = torch.tensor([3.0, 4.0 + 5e-4])
    found = race(
        [noting("a", [], x), noting("b", [], near, twin="a"), noting("c", [], -x)],
        rounds=1, sample_seconds=0.0,
    )  # fmt: skip
    assert found["a"].difference is None
    assert found["c"].difference is None
    assert found["b"].difference == pytest.approx(1e-4, rel=1e-3)


@pytest.mark.parametrize("other", [torch.tensor([3.0, 4.1]), torch.tensor([3.0, float("nan")])])
def test_results_that_disagree_stop_the_benchmark(other):
    pair = [noting("a", [], torch.tensor([3.0, 4.0])), noting("b", [], other, twin="a")]
    with pytest.raises(RuntimeError, match="b and a must compute the same"):
        race(pair, rounds=1, sample_seconds=0.0)


def test_a_short_race_goes_on_up_to_a_limit(monkeypatch):
    found = race([noting("a", [])], rounds=2, sample_seconds=0.0, most_rounds=7)
    assert len(found["a"].samples) == 7
    for limit in ("RACE_SECONDS", "UNSETTLED_SECONDS"):
        monkeypatch.setattr(f"benchmarks.timing.{limit}", 0.0)
    found = race([noting("a", [])], rounds=2, sample_seconds=0.0, most_rounds=7)
    assert len(found["a"].samples) == 2


def test_a_long_race_goes_on_while_a_best_time_is_falling(monkeypatch):
    monkeypatch.setattr("benchmarks.timing.RACE_SECONDS", 0.0)
    times = iter([0.9, 0.8, 0.7, 0.6, 0.6, 0.61, 0.595, 0.5, 0.5])
    monkeypatch.setattr("benchmarks.timing.sample", lambda run, calls: next(times))
    monkeypatch.setattr("benchmarks.timing._warm_up", lambda c: (None, 1.0))
    found = race([noting("a", [])], rounds=2, sample_seconds=0.0, most_rounds=9)
    assert found["a"].samples == [0.9, 0.8, 0.7, 0.6, 0.6, 0.61, 0.595]
