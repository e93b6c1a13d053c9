"""`LoopHandle`: ended once, however often and from wherever that is asked for."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable

import pytest

from slate_async.errors import ClosedError, InvalidError, UnavailableError
from slate_async.runtime.loop_handle import LoopHandle


class Door(LoopHandle):
    """Ends when the test lets it."""

    def __init__(self) -> None:
        super().__init__("the door")
        self.may_end = asyncio.Event()
        self.ended = 0
        self.failure: Exception | None = None

    async def knock(self) -> None:
        self._guard.check("not_applied")

    async def close(self) -> None:
        await self._end()

    async def _finish(self) -> None:
        await self.may_end.wait()
        self.ended += 1
        if self.failure is not None:
            raise self.failure


async def test_it_ends_once_and_a_cancelled_call_leaves_that_going_on() -> None:
    door = Door()
    await door.knock()
    first, second = asyncio.ensure_future(door.close()), asyncio.ensure_future(door.close())
    await asyncio.sleep(0)
    with pytest.raises(ClosedError, match="the door is closed; open it again") as caught:
        await door.knock()
    assert caught.value.outcome == "not_applied"
    first.cancel()
    door.may_end.set()
    await second
    await door.close()
    assert door.ended == 1


async def test_what_ends_with_it_is_released_after_it_whatever_fails() -> None:
    door, released = Door(), list[str]()
    door.failure = UnavailableError("no answer")

    def release(name: str) -> Callable[[], Awaitable[None]]:
        async def note() -> None:
            assert door.ended == 1
            released.append(name)
            raise KeyError(name)

        return note

    door._on_closed(release("hinge"))
    door._on_closed(release("frame"))
    door.may_end.set()
    with pytest.raises(KeyError, match="frame"):
        await door.close()
    assert released == ["hinge", "frame"]


async def test_what_ending_raises_is_raised_by_each_call_and_only_logged_beside_another_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = Door()
    door.may_end.set()
    door.failure = UnavailableError("no answer")
    with caplog.at_level(logging.ERROR), pytest.raises(KeyError):
        async with door:
            raise KeyError("mine")
    assert "the door: closing failed, too, after another error" in caplog.text
    for _ in range(2):
        with pytest.raises(UnavailableError, match="no answer"):
            await door.close()


async def test_it_belongs_to_one_event_loop() -> None:
    door = Door()
    door.may_end.set()
    for call in (door.knock, door.close):
        with pytest.raises(InvalidError, match=r"the door .*another event loop|close the door on the event loop"):
            await asyncio.to_thread(lambda call=call: asyncio.run(call()))  # type: ignore[misc]
    await door.close()


async def test_one_that_is_dropped_open_is_warned_about() -> None:
    door = Door()
    with pytest.warns(ResourceWarning, match="the door was never closed"):  # noqa: PT031
        del door
        gc.collect()
