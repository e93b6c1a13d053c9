"""`slate_async.runtime.gather`: what a failure leaves behind."""

from __future__ import annotations

import asyncio
import gc

import pytest

from slate_async.runtime.gather import gather


async def fail() -> None:
    await asyncio.sleep(0)
    raise ValueError("gone")


async def test_a_timeout_of_the_caller_is_one_also_after_a_call_failed() -> None:
    """Whoever handles the failure and goes on is not taken for cancelled by somebody else when time is up."""

    async def go_on() -> None:
        async with asyncio.timeout(0.01):
            with pytest.raises(ValueError, match="gone"):
                await gather([fail(), asyncio.sleep(10)])
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        await go_on()


async def test_the_others_have_ended_when_a_failure_is_raised() -> None:
    ended: list[str] = []

    async def long() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(0)
            ended.append("long")

    with pytest.raises(ValueError, match="gone"):
        await gather([long(), fail(), long()])
    assert ended == ["long", "long"]


async def test_of_several_failures_the_first_is_raised_and_names_the_others() -> None:
    async def fail_when_cancelled() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            raise ValueError("cancelled") from None

    with pytest.raises(ValueError, match="gone") as caught:
        await gather([fail_when_cancelled(), fail()])
    assert "cancelled" in caught.value.__notes__[0]


async def test_cancelling_the_caller_ends_all_calls() -> None:
    ended: list[int] = []

    async def long(number: int) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ended.append(number)

    gathering = asyncio.create_task(gather([long(0), long(1)]))
    await asyncio.sleep(0.01)
    gathering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gathering
    assert sorted(ended) == [0, 1]


async def test_failures_of_calls_whose_caller_was_cancelled_are_not_reported_by_the_loop() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))

    async def fail_when_cancelled() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            raise ValueError("gone")

    gathering = asyncio.create_task(gather([fail_when_cancelled(), fail_when_cancelled()]))
    await asyncio.sleep(0.01)
    gathering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gathering
    del gathering
    await asyncio.sleep(0)
    gc.collect()
    assert reported == []
