"""`LoopGuard`: calls of its own loop are served until it is shut; all others are asked about."""

from __future__ import annotations

import asyncio

import pytest

from slate_async.errors import ClosedError, Outcome
from slate_async.runtime.loop_guard import LoopGuard


class Refusals:
    def __init__(self) -> None:
        self.outcomes: list[Outcome | None] = []

    def __call__(self, outcome: Outcome | None) -> None:
        self.outcomes.append(outcome)
        raise ClosedError("refused", outcome=outcome)


async def test_calls_of_its_own_loop_are_served_until_it_is_shut() -> None:
    refuse = Refusals()
    guard = LoopGuard(refuse)
    guard.check()
    guard.check("not_applied")
    assert refuse.outcomes == []
    assert guard.open
    guard.shut()
    assert not guard.open
    with pytest.raises(ClosedError):
        guard.check()
    with pytest.raises(ClosedError) as caught:
        guard.check("not_applied")
    assert caught.value.outcome == "not_applied"
    assert refuse.outcomes == [None, "not_applied"]


async def test_calls_of_another_thread_are_asked_about() -> None:
    refuse = Refusals()
    guard = LoopGuard(refuse)
    with pytest.raises(ClosedError):
        await asyncio.to_thread(guard.check)
    guard.check()


def test_calls_after_its_loop_ended_are_asked_about() -> None:
    async def made() -> LoopGuard:
        return LoopGuard(refuse)

    refuse = Refusals()
    guard = asyncio.run(made())
    with pytest.raises(ClosedError):
        guard.check()


async def test_what_refuses_may_serve_all_the_same() -> None:
    guard = LoopGuard(lambda outcome: None)
    guard.shut()
    guard.check()
