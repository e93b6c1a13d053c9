"""P5, P8 and P9 with controllers of the product, and the switches that a history notices."""

from __future__ import annotations

import contextlib
from unittest import mock

import pytest

from slate_async.collections.codec.life import Appends
from tests.slices import sample, seeds
from tests.unit.collections.controller.histories import play
from tests.unit.collections.controller.switches import SWITCHES, Switch

SLICE_SEEDS = 2
FULL_SEEDS = 30
SLICE_SWITCHES = 2


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A slice of the switches that moves with every commit; all of them in the long form."""
    if "switch" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full")
        switches = SWITCHES if full else sample(SWITCHES, SLICE_SWITCHES, "histories of controllers")
        metafunc.parametrize("switch", switches, ids=lambda switch: switch.name)


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("appends", list(Appends))
async def test_two_controllers_break_nothing_that_writers_and_readers_do(appends: Appends, full: bool) -> None:
    played = seeds(FULL_SEEDS if full else SLICE_SEEDS)
    snapshots = merges = fenced = 0
    for seed in played:
        history = await play(seed, appends)
        assert history.wrong == [], f"seed {seed}"
        snapshots += history.tally.snapshots
        merges += history.tally.merges
        fenced += history.tally.fenced
    assert snapshots > 10 * len(played)
    assert merges > 0
    assert fenced > 0


async def test_without_a_rule_a_history_goes_wrong(switch: Switch) -> None:
    with contextlib.ExitStack() as patches:
        for target, instead in switch.patches:
            patches.enter_context(mock.patch(target, instead))
        for seed in range(switch.within):
            if (await play(seed, switch.appends)).wrong:
                return
    pytest.fail(f"no history of {switch.within} noticed: {switch.broken}")
