"""P5, P8 and P9 with controllers of the product, and the switches that a history notices."""

from __future__ import annotations

import contextlib
from unittest import mock

import pytest

from slate_async.collections.codec.life import Appends
from tests.unit.collections.controller.histories import play
from tests.unit.collections.controller.switches import SWITCHES, Switch

SEEDS = 6


@pytest.mark.parametrize("appends", list(Appends))
async def test_two_controllers_break_nothing_that_writers_and_readers_do(appends: Appends) -> None:
    snapshots = merges = fenced = 0
    for seed in range(SEEDS):
        history = await play(seed, appends)
        assert history.wrong == [], f"seed {seed}"
        snapshots += history.tally.snapshots
        merges += history.tally.merges
        fenced += history.tally.fenced
    assert snapshots > 20 * SEEDS
    assert merges > SEEDS
    assert fenced > SEEDS


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
async def test_without_a_rule_a_history_goes_wrong(switch: Switch) -> None:
    with contextlib.ExitStack() as patches:
        for target, instead in switch.patches:
            patches.enter_context(mock.patch(target, instead))
        for seed in range(switch.within):
            if (await play(seed, switch.appends)).wrong:
                return
    pytest.fail(f"no history of {switch.within} noticed: {switch.broken}")
