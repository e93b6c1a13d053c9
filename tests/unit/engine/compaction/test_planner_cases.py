"""The planners, case by case; the cases are drawings in ``cases/``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from slate_async.engine.compaction.planner import plan, plan_full, plan_level, plan_range
from slate_async.engine.compaction.spec import CompactionSpec
from slate_async.errors import InvalidError
from slate_async.storage.manifest.state import Compaction
from tests.unit.engine.compaction.drawings import NOW_MS, Case, draw, read_cases

CASES = [case for path in sorted((Path(__file__).parent / "cases").glob("*.txt")) for case in read_cases(path)]


def answer(case: Case) -> list[CompactionSpec]:
    kind, *words = case.call.split()
    if kind == "full":
        return plan_full(case.state, NOW_MS, case.config, case.log)
    if kind == "range":
        start, end = (None if word == "-" else word.encode() for word in words)
        return plan_range(case.state, start, end, NOW_MS, case.config, case.log)
    if kind == "level":
        return plan_level(case.state, int(words[0]), NOW_MS, case.config, case.log)
    return plan(case.state, NOW_MS, case.config, case.log)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    assert draw(case.state, case.log, answer(case)) == case.expected


def test_a_level_that_does_not_exist() -> None:
    case = next(case for case in CASES if case.name == "level: into the next")
    with pytest.raises(InvalidError, match="levels 0, 1, 2"):
        plan_level(case.state, 7, NOW_MS, case.config)
    with pytest.raises(InvalidError, match="only level 0, L0"):
        plan_level(replace(case.state, runs=()), 7, NOW_MS, case.config)


def test_nothing_is_moved_into_a_level_that_is_taken_whole() -> None:
    """It would be taken out with the level."""
    case = next(case for case in CASES if case.name == "rising keys are only moved")
    [level] = case.state.runs
    expired_at_ms, keep_above = 0, 0
    compaction = Compaction(
        UUID(int=1),
        1,
        1,
        expired_at_ms,
        keep_above,
        bottom=False,
        l0=(),
        runs=(level.id,),
        target_run=9,
        target_level=1,
    )
    state = replace(case.state, compactions=(compaction,))
    assert plan(state, NOW_MS, case.config, case.log) == []
    some = replace(compaction, ssts=tuple(sst.object_id for sst in level.ssts))
    assert [spec.move for spec in plan(replace(state, compactions=(some,)), NOW_MS, case.config, case.log)] == [True]
