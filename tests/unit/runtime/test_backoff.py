"""`Backoff`: waits grow within bounds, and the deadline ends them and a slow attempt alike."""

from __future__ import annotations

import asyncio

import pytest

from slate_async.errors import Outcome, UnavailableError
from slate_async.runtime.backoff import Backoff
from tests.engine import ManualClock, runtime


class SleepClock(ManualClock):
    """Time passes only while somebody sleeps, and then at once."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


async def test_waits_grow_and_end_with_the_deadline() -> None:
    clock = SleepClock()
    backoff = Backoff(runtime(clock), 2000, "this")
    cause = ConnectionError("refused")
    waits: list[float] = []
    while clock.seconds < 1.99:
        begun = clock.seconds
        await backoff.wait(cause)
        waits.append(clock.seconds - begun)
    assert clock.seconds <= 2
    clock.seconds = 2
    with pytest.raises(UnavailableError, match=r"this did not succeed within 2000 ms.*: refused") as failed:
        await backoff.wait(cause)
    assert failed.value.outcome == "unknown"
    assert failed.value.__cause__ is cause
    for number, wait in enumerate(waits):
        assert 0 < wait <= 0.02 * 2 ** min(number, 6) + 1e-9


async def test_an_attempt_is_cut_off_at_the_deadline_of_all() -> None:
    backoff = Backoff(runtime(), 1, "this")
    with pytest.raises(UnavailableError, match="no answer in time") as failed:
        await backoff.attempt(asyncio.Event().wait())
    assert failed.value.outcome == "unknown"


async def test_an_attempt_gives_what_the_work_gives() -> None:
    assert await Backoff(runtime(), 1000, "this").attempt(asyncio.sleep(0, "done")) == "done"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [("unknown", "; it may still take effect"), ("not_applied", "; nothing was written"), (None, "")],
)
async def test_words_fit_the_outcome(outcome: Outcome | None, said: str) -> None:
    clock = SleepClock()
    backoff = Backoff(runtime(clock), 2000, "this")
    clock.seconds = 2
    with pytest.raises(UnavailableError) as failed:
        await backoff.wait(OSError("no space left"), outcome)
    assert str(failed.value) == f"this did not succeed within 2000 ms{said}: no space left"
    assert failed.value.outcome == outcome


async def test_an_attempt_that_is_cut_off_says_what_went_wrong_before() -> None:
    backoff = Backoff(runtime(), 50, "this")
    await backoff.wait(OSError("no space left"))
    with pytest.raises(UnavailableError, match="no answer in time; before that: no space left"):
        await backoff.attempt(asyncio.Event().wait())
