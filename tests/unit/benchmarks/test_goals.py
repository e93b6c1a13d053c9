"""Ratios are of figures of one round; goals are judged by their median."""

from __future__ import annotations

import pytest

from tests.benchmarks.goals import Goal, verdicts
from tests.benchmarks.rounds import Plan, Samples, Turn, WrongAnswerError, require


def samples(**found: list[float]) -> Samples:
    """Figures of "put" by subject."""
    made = Samples()
    for subject, values in found.items():
        for value in values:
            made.add("put", subject, value, "rows/s")
    return made


def test_a_ratio_is_of_one_round() -> None:
    found = samples(slate_async=[10, 100, 1], peer=[5, 100, 2])
    assert found.ratio("put", "slate_async", "put", "peer") == 1
    assert found.median("put", "slate_async") == 10


def test_unpaired_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        samples(slate_async=[1, 2], peer=[1]).ratio("put", "slate_async", "put", "peer")


@pytest.mark.parametrize(
    ("goal", "word"),
    [
        (Goal(1, "put", 2, ("put", "peer")), "met"),
        (Goal(1, "put", 2.1, ("put", "peer")), "not met"),
        (Goal(1, "put", 2, ("put", "peer"), most=True), "met"),
        (Goal(1, "put", 1.9, ("put", "peer"), most=True), "not met"),
        (Goal(1, "put", 11), "not met"),
        (Goal(1, "put", 1, ("put", "absent")), "not measured"),
        (Goal(1, "get", 1), "not measured"),
    ],
)
def test_a_goal_is_judged(goal: Goal, word: str) -> None:
    (verdict,) = verdicts((goal,), samples(slate_async=[10], peer=[5]))
    assert verdict.word == word


def test_every_engine_is_first_and_last_in_turn() -> None:
    orders = [Turn(number, Plan(), Samples()).in_order("abc") for number in range(6)]
    assert {order[0] for order in orders} == {order[-1] for order in orders} == set("abc")


def test_a_wrong_answer_ends_the_run() -> None:
    require(True, "peer", "get")
    with pytest.raises(WrongAnswerError, match="peer: get"):
        require(False, "peer", "get")
