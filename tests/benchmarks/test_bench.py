"""Timers that take turns, and what they say of rules, threads and answers."""

from __future__ import annotations

import math

import pytest

from bayesmf import Synthetic
from bayesmf.data.ratings import Ratings
from bayesmf.data.training import TrainingData
from bayesmf.samplers.gibbs import Auto, Gibbs
from benchmarks.speed import timers as bench
from benchmarks.speed.timers import EpochTimer, Timed, Timer, take_turns


@pytest.fixture(scope="module")
def ratings() -> Ratings:
    return Synthetic(60, 40, 900, stars=True).ratings().compact()


@pytest.fixture(scope="module")
def data(ratings: Ratings) -> TrainingData:
    return bench.training_data(ratings)


class Clockwork:
    """Something whose runs take 10 seconds and 2 for each epoch, and longer now and then."""

    def __init__(self, late: dict[int, float] | None = None) -> None:
        self.asked: list[int] = []
        self.late = late or {}

    def __call__(self, epochs: int) -> float:
        self.asked.append(epochs)
        return 10.0 + 2.0 * epochs + self.late.get(len(self.asked), 0.0)


def test_start_and_layout_drop_out() -> None:
    work = Clockwork()
    timer = Timer(work, spent=11.0)
    take_turns([timer], 2)
    assert timer.epochs == 5 and timer.seconds == 2.0
    assert work.asked == [1, 1, 3, 1, 6, 1, 6]


def test_a_late_short_run_does_not_make_epochs_quick() -> None:
    # Of two laps the first short run and the second long one are late by more than all epochs.
    work = Clockwork({2: 20.0, 5: 20.0})
    timer = Timer(work, epochs=4)
    take_turns([timer], 2)
    assert work.asked == [1, 1, 5, 1, 5] and timer.seconds == 2.0


def test_timers_take_turns_and_tell_how_far_they_are() -> None:
    order: list[str] = []

    def named(name: str) -> Timer:
        return Timer(lambda n: order.append(name) or float(n), short=0, epochs=1)  # type: ignore[func-returns-value]

    done: list[int] = []
    take_turns([named("a"), named("b")], 2, done.append)
    assert order == ["a", "b"] * 3
    assert sum(done) == 6


@pytest.mark.parametrize("name", bench.RULES)
def test_every_rule_is_timed(data: TrainingData, name: str) -> None:
    timer = EpochTimer(data, Timed(bench.RULES[name], 3), epochs=2)
    take_turns([timer], 1)
    assert 0 < timer.seconds < 60
    assert math.isclose(timer.ratings_per_second, len(data) / timer.seconds)
    assert name in bench.LABELS


def test_a_case_is_what_a_fit_would_run(data: TrainingData) -> None:
    one = Timed(bench.RULES["sghmc"], 5).settings(4).resolve(data)
    assert one.sampler.epochs == 4 and one.sampler.exact_below == 6  # type: ignore[union-attr]
    assert one.prior.bias and type(one.prior).__name__ == "GammaPrior"
    two = Timed(Auto(burn_in=0, n_chains=2), 40, prior="wishart").settings(4).resolve(data)
    assert two.sampler == Gibbs(2, 4, burn_in=0, joint=4, thin=1.0, n_stripes=two.sampler.n_stripes)
    assert not two.prior.bias
    assert bench.default_rule(data, 4) == "gibbs" and bench.default_rule(data, 40) == "gibbs-4"


def test_threads_are_compared_with_one(data: TrainingData) -> None:
    timers = bench.scaling_timers(data, 3, 2, epochs=1)
    take_turns((timer for pair in timers.values() for timer in pair), 1)
    rows = bench.scaling_rows(timers)
    assert [row["threads"] for row in rows] == [2] * 4
    for row, (one, two) in zip(rows, timers.values(), strict=True):
        assert (one.case.threads, two.case.threads) == (1, 2)
        assert row["speed_up"] == one.seconds / two.seconds
    assert (
        rows[-1]["case"] == "default, 2 chains"
        and timers["default, 2 chains"][0].case.n_chains == 2
    )


def test_answers_are_timed(ratings: Ratings) -> None:
    model = bench.fitted(ratings, 3)
    assert len(model.posterior_.draws) == bench.DRAWS
    timers = bench.answer_timers(model, (1, 2), 500)
    take_turns(timers.values(), 1)
    rows = bench.answer_rows(model, timers, 500)
    assert [(row["answer"], row["count"], row["threads"]) for row in rows] == [
        ("predict", 500, 1), ("top-10", 60, 1), ("predict", 500, 2), ("top-10", 60, 2),
    ]  # fmt: skip
    assert all(row["per_second"] > 0 for row in rows)
