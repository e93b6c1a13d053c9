"""P7, P8, P9 and P14 over histories that Hypothesis makes: whose turn it is, and what becomes of each write.

The processes are those of the simulator's scenarios ``collections-…``, which make every decision with the product's
pure functions. A reader that finds anything but the truth under a hold that stands, an append that was acknowledged and
is not in the chain, and garbage that stays for ever are violations.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.collections.core import garbage
from slate_async.collections.core.chain import Walk
from slate_async.collections.core.times import TimeKind
from tests.property.collections.strategies import KINDS
from tests.simulation.checkers import Violation
from tests.simulation.scenarios.collections.controllers import controller
from tests.simulation.scenarios.collections.play import finish
from tests.simulation.scenarios.collections.readers import listener, reader
from tests.simulation.scenarios.collections.stage import Appends, Fault, Stage
from tests.simulation.scenarios.collections.writers import writer

FAULTS = st.sampled_from([Fault.NONE] * 5 + list(Fault))
TURNS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 12), FAULTS, st.booleans()), max_size=120)
"""Whose turn, for how many operations, what becomes of its writes, and whether a late one lands after it."""
both_kinds = pytest.mark.parametrize("kind", KINDS)
Turns = list[tuple[int, int, Fault, bool]]


def staged(appends: Appends, kind: TimeKind, seed: int) -> Stage:
    stage = Stage(random.Random(seed), appends, kind, "mixed")
    stage.start(lambda process: controller(stage, process))
    for _ in range(2):
        stage.start(lambda _: writer(stage, "w0"))
    return stage


def driven(stage: Stage, turns: Turns) -> None:
    for who, operations, fault, lands in turns:
        for _ in range(operations):
            stage.now += 1
            if stage.tasks:
                stage.step(stage.tasks[who % len(stage.tasks)], fault)
        if lands and stage.late:
            stage.land()
    finish(stage)


@both_kinds
@settings(max_examples=25)
@given(TURNS, st.integers(0, 99))
def test_no_hold_that_stands_meets_a_deleted_object(kind: TimeKind, turns: Turns, seed: int) -> None:
    stage = staged("definite", kind, seed)
    stage.start(lambda process: reader(stage, process))
    stage.start(lambda process: listener(stage, process))
    driven(stage, turns)


@both_kinds
@settings(max_examples=25)
@given(TURNS, st.integers(0, 99))
def test_compare_appends_form_one_chain(kind: TimeKind, turns: Turns, seed: int) -> None:
    stage = staged("compare", kind, seed)
    stage.start(lambda _: writer(stage, "w1"))
    driven(stage, turns)
    end = stage.minimum
    for lower, upper, _ in stage.chain:
        assert lower == end
        end = upper
    assert end == stage.head.upper


def test_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rule off there are violations."""
    monkeypatch.setattr(garbage, "cut_off", lambda lowest, head: head)
    monkeypatch.setattr(Walk, "counts", lambda *_: True)
    rng, found = random.Random(1), 0
    for seed in range(60):
        turns = [
            (rng.randrange(9), rng.randint(1, 12), rng.choice(list(Fault)), rng.random() < 0.3) for _ in range(120)
        ]
        stage = staged("definite", TimeKind.U64, seed)
        stage.start(lambda process, stage=stage: reader(stage, process))
        try:
            driven(stage, turns)
        except Violation:
            found += 1
    assert found
