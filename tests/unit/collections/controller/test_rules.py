"""Rules C7, C16 to C19, C22 and C23 of collections, each by the history that it is for, with and without it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.unit.collections.controller import scenarios, switches
from tests.unit.collections.kept import KeptLake

Scenario = Callable[[KeptLake], Awaitable[str | None]]

CONTROLLER, CORE = "slate_async.collections.controller", "slate_async.collections.core"
CASES: list[tuple[str, Scenario, switches.Patches]] = [
    (
        "C16",
        scenarios.since_goes_up_in_two_phases,
        [(f"{CONTROLLER}.round.compaction_target", switches.as_met), *switches.UNCHECKED],
    ),
    (
        "C17",
        scenarios.deletion_goes_up_in_two_phases,
        [(f"{CORE}.garbage.lowest_needed", switches.lowest_now)],
    ),
    ("C18", scenarios.clones_are_found, [(f"{CONTROLLER}.sweep.is_complete", switches.ends_when_read)]),
    (
        "C19",
        scenarios.a_revocation_without_an_answer_is_none,
        [(f"{CONTROLLER}.sweep.Sweep._is_revoked", switches.revoked_unasked)],
    ),
    (
        "C19 after an outage",
        scenarios.an_outage_ends_no_lease,
        [(f"{CORE}.sweep.counted_ms", switches.all_counts)],
    ),
    (
        "C22",
        scenarios.a_commit_without_an_answer_may_take_effect,
        [(f"{CONTROLLER}.flights.Flights.doubt", switches.unchecked)],
    ),
    ("C23", scenarios.later_epochs_are_left_alone, [(f"{CORE}.garbage.is_later", switches.never)]),
    ("C7", scenarios.what_is_told_by_a_chain, [(f"{CORE}.chain.is_dead", switches.never)]),
]


@pytest.mark.parametrize(("rule", "scenario", "patches"), CASES, ids=[case[0] for case in CASES])
async def test_nothing_goes_wrong(rule: str, scenario: Scenario, patches: switches.Patches, lake: KeptLake) -> None:
    assert await scenario(lake) is None


@pytest.mark.parametrize(("rule", "scenario", "patches"), CASES, ids=[case[0] for case in CASES])
async def test_without_the_rule_it_does(
    rule: str, scenario: Scenario, patches: switches.Patches, lake: KeptLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target, instead in patches:
        monkeypatch.setattr(target, instead)
    assert await scenario(lake) is not None
