"""`slate_async.runtime.loop_iterator`: pieces of a loop for other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator

import pytest

from slate_async.errors import ClosedError, InvalidError
from slate_async.runtime import loop_iterator
from slate_async.runtime.loop_iterator import iterated


class Numbers:
    """They are made in the loop, one when it is wanted."""

    def __init__(self, count: int, failure: Exception | None = None) -> None:
        self.count = count
        self.failure = failure
        self.made = 0
        self.ended = asyncio.Event()

    async def stream(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                await asyncio.sleep(0)
                self.made += 1
                yield number
            if self.failure is not None:
                raise self.failure
        finally:
            self.ended.set()

    def pieces(self) -> Iterator[int]:
        return iterated(self.stream, "ask in a thread")


async def test_each_piece_is_made_when_it_is_asked_for() -> None:
    numbers = Numbers(5)
    pieces = numbers.pieces()
    assert numbers.made == 0
    assert await asyncio.to_thread(next, pieces) == 0
    assert numbers.made == 1
    assert await asyncio.to_thread(list, pieces) == [1, 2, 3, 4]
    assert numbers.ended.is_set()


async def test_what_goes_wrong_in_the_loop_is_raised_in_the_thread() -> None:
    numbers = Numbers(1, ValueError("of the stream"))
    with pytest.raises(ValueError, match="of the stream"):
        await asyncio.to_thread(list, numbers.pieces())


async def test_one_that_is_dropped_ends_in_the_loop() -> None:
    numbers = Numbers(5)
    pieces = numbers.pieces()
    assert await asyncio.to_thread(next, pieces) == 0
    del pieces  # in the loop's own thread
    async with asyncio.timeout(10):
        await numbers.ended.wait()
    assert numbers.made == 1


async def test_the_loop_cannot_ask_itself() -> None:
    with pytest.raises(InvalidError, match="would wait for itself; ask in a thread"):
        next(Numbers(1).pieces())


@pytest.mark.parametrize("from_the_start", [True, False])
async def test_a_loop_that_waits_for_the_thread_is_no_deadlock(
    from_the_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that calls a library which pulls in threads of its own."""
    monkeypatch.setattr(loop_iterator, "STALLED_S", 0.1)
    begun, found = threading.Event(), list[BaseException]()

    async def stream() -> AsyncGenerator[int, None]:
        begun.set()
        await asyncio.sleep(3600)
        yield 1

    pieces = iterated(stream, "ask in a thread")

    def ask() -> None:
        try:
            next(pieces)
        except InvalidError as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    if not from_the_start:
        await asyncio.to_thread(begun.wait)
    thread.join(60)  # nothing runs in the loop
    assert str(found[0]) == "the event loop has stood still for 0.1 s; ask in a thread"


def test_a_loop_that_has_ended_gives_no_more() -> None:
    async def begun() -> Iterator[int]:
        pieces = Numbers(5).pieces()
        assert await asyncio.to_thread(next, pieces) == 0
        return pieces

    pieces = asyncio.run(begun())
    with pytest.raises(ClosedError, match="the event loop has ended"):
        next(pieces)
