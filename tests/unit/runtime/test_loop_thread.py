"""`LoopThread`: interrupts, callbacks, the end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator

import pytest

from slate_async.errors import ClosedError, InvalidError
from slate_async.runtime import loop_thread
from slate_async.runtime.loop_thread import LoopThread


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    """One of the test's own."""
    found = LoopThread("test")
    yield found
    found.end()


def interrupt_when(started: threading.Event) -> threading.Thread:
    """Press Ctrl-C then."""

    def press() -> None:
        started.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


async def answer(value: int) -> int:
    """After a turn."""
    await asyncio.sleep(0)
    return value


def test_results_and_errors_come_back(loop: LoopThread) -> None:
    async def fail() -> None:
        raise KeyError("k")

    assert loop.run(answer, 3) == 3
    assert loop.call(max, 1, 2) == 2
    with pytest.raises(KeyError):
        loop.run(fail)


def test_an_interrupted_call_is_cancelled_and_the_next_one_works(loop: LoopThread) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def forever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    presser = interrupt_when(started)
    with pytest.raises(KeyboardInterrupt):
        loop.run(forever)
    presser.join()
    assert cancelled.is_set()
    assert loop.run(answer, 4) == 4


def test_what_was_opened_in_spite_of_an_interrupt_is_closed(loop: LoopThread) -> None:
    started, undone = threading.Event(), list[str]()

    async def stubborn() -> str:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "made"

    async def undo(made: str) -> None:
        undone.append(made)

    presser = interrupt_when(started)
    with pytest.raises(KeyboardInterrupt):
        loop.open(stubborn, undo)
    presser.join()
    assert undone == ["made"]


def test_an_interrupt_just_as_the_result_comes_ends_the_wait_and_undoes_it(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the caller has the lock already, and waits for it no second time."""
    undone, wait = list[int](), loop_thread._Call.wait

    async def undo(made: int) -> None:
        undone.append(made)

    def interrupted(call: loop_thread._Call[int]) -> None:
        wait(call)
        if call.undo is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop_thread._Call, "wait", interrupted)
    failure = list[BaseException]()

    def caller() -> None:
        try:
            loop.open(lambda: answer(7), undo)
        except BaseException as error:  # noqa: BLE001 - looked at below
            failure.append(error)

    thread = threading.Thread(target=caller, daemon=True)
    thread.start()
    thread.join(10)
    assert [type(error) for error in failure] == [KeyboardInterrupt]
    assert undone == [7]


def test_a_callback_cannot_wait_for_its_own_thread(loop: LoopThread) -> None:
    async def nested() -> int:
        return loop.run(answer, 5)

    with pytest.raises(InvalidError, match="a callback runs on the event loop's thread"):
        loop.run(nested)


def test_the_end_closes_the_last_first_and_goes_on_after_a_failure(loop: LoopThread) -> None:
    closed = list[str]()

    async def close(name: str) -> None:
        await asyncio.sleep(0)
        closed.append(name)
        if name == "second":
            raise InvalidError("cannot")

    names = ["first", "second", "third"]
    for name in names:
        loop.at_end(name, lambda name=name: close(name))  # type: ignore[misc]
    loop.forget("third")
    loop.end()
    loop.end()
    assert closed == ["second", "first"]
    with pytest.raises(ClosedError, match="the interpreter is ending"):
        loop.run(answer, 6)


def test_a_call_that_is_under_way_at_the_end_fails(loop: LoopThread) -> None:
    started = threading.Event()

    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    told = list[BaseException]()

    def wait() -> None:
        try:
            loop.run(forever)
        except ClosedError as error:
            told.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    started.wait()
    loop.end()
    waiting.join()
    assert "its event loop is ending" in str(told[0])
