"""What is said of a stall."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from slate_async.engine.write import l0_pressure
from slate_async.engine.write.l0_pressure import REMIND_AFTER_S, L0Pressure
from tests.engine import ManualClock, settle, starts, until


class MonotonicClock(ManualClock):
    """Its monotonic time moves only when it is turned, too."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class L0:
    l0_count: int


class ElsewhereCompacted:
    """The compactor of another process."""

    def describe(self) -> str:
        return "compacted elsewhere, epoch 7"


async def test_a_stall_that_lasts_is_logged_again_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, l0 = MonotonicClock(), L0(3)
    pressure = L0Pressure("memory://db", 3, l0, ElsewhereCompacted(), clock)
    [waiting] = starts(pressure.room())
    await settle()
    assert pressure.reason == "L0 has 3 SSTs and may have 3; compacted elsewhere, epoch 7"
    clock.seconds += REMIND_AFTER_S + 1
    assert pressure.reason is not None
    assert pressure.reason.endswith("no room has come for 31 s: see that a compactor runs, such as `slate compactor`")

    monkeypatch.setattr(l0_pressure, "REMIND_AFTER_S", 0.001)
    pressure.changed()  # nothing has
    [again] = starts(pressure.room())
    await until(lambda: "memory://db: writes still wait" in caplog.text, "a reminder")
    l0.l0_count = 2
    pressure.changed()
    await again
    await waiting
    assert pressure.reason is None
    assert all(record.levelno == logging.WARNING for record in caplog.records)
