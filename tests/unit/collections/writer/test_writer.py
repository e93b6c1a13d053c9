"""`slate_async.collections.writer.writer`: the life of the handle, and cancellation at every await."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.writer.writer import open_writer, shard_of
from slate_async.errors import ClosedError, InvalidError, UnavailableError
from slate_async.objectstore.local import LocalStore
from tests.engine import settle, starts, until
from tests.support.collection_bytes import frontier, many
from tests.unit.collections.faults import next_put
from tests.unit.collections.lake import Lake

KINDS = list(Appends)


def shard(appends: Appends) -> str:
    """Of the writer of a test."""
    return "main" if appends is Appends.COMPARE else "relay-a"


@pytest.mark.parametrize("appends", KINDS)
async def test_closing_waits_for_what_was_accepted(lake: Lake, appends: Appends) -> None:
    writer = await lake.writer(appends)
    lake.store.hold = True
    calls = starts(writer.append([], lower=0, upper=3), writer.append([], lower=3, upper=5))
    await until(lambda: bool(lake.store.held), "the put is on its way")
    await settle()
    closing = starts(writer.close(), writer.close())
    await settle()
    assert not closing[0].done()
    with pytest.raises(ClosedError, match="the writer of orders is closed; open it again") as raised:
        await writer.append([], upper=9)
    assert raised.value.outcome == "not_applied"
    lake.store.release()
    await asyncio.gather(*closing)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert results[0] is None
    if appends is Appends.COMPARE:  # the other one had not been accepted
        assert isinstance(results[1], ClosedError)
        assert results[1].outcome == "not_applied"
    assert (await lake.rows([shard(appends)]))[0] == frontier(5 if results[1] is None else 3)
    await writer.close()


async def test_a_cancelled_close_goes_on(lake: Lake) -> None:
    released = []

    async def release() -> None:
        released.append(True)

    writer = await lake.writer(Appends.DEFINITE)
    writer._on_closed(release)
    lake.store.hold = True
    call = starts(writer.append([], upper=3))
    await until(lambda: bool(lake.store.held), "the put is on its way")
    closing = asyncio.ensure_future(writer.close())
    await settle()
    closing.cancel()
    await asyncio.wait([closing])
    lake.store.release()
    await writer.close()
    assert (call[0].exception(), released) == (None, [True])


async def test_async_with_closes(lake: Lake) -> None:
    async with await lake.writer(Appends.DEFINITE) as writer:
        await writer.append([], upper=3)
    with pytest.raises(ClosedError):
        await writer.append([], upper=4)
    with pytest.raises(ClosedError):
        async with writer.batch(upper=4):
            pytest.fail("begun")


async def test_a_writer_belongs_to_its_loop(lake: Lake) -> None:
    writer = await lake.writer(Appends.DEFINITE)
    found: list[BaseException] = []

    def elsewhere() -> None:
        for call in (writer.append([], upper=3), writer.close()):
            try:
                asyncio.run(call)
            except InvalidError as error:
                found.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert ["event loop" in str(error) for error in found] == [True, True]


async def test_a_writer_that_is_dropped_warns(lake: Lake) -> None:
    context = lake.context(Appends.DEFINITE)
    with pytest.warns(ResourceWarning, match="the writer of orders was never closed"):  # noqa: PT031
        await open_writer(context, Appends.DEFINITE)
        gc.collect()


async def test_arguments_are_checked(lake: Lake) -> None:
    assert [shard_of("relay-a", appends) for appends in KINDS] == ["relay-a", "main"]
    with pytest.raises(InvalidError, match="no name of a writer"):
        shard_of("Relay", Appends.COMPARE)
    with pytest.raises(InvalidError, match="flush_parallelism is at least 1, not 0"):
        await lake.writer(Appends.DEFINITE, flush_parallelism=0)
    writer = await lake.writer(Appends.DEFINITE)
    wrong: list[tuple[Any, Any]] = [(None, -1), (None, (1, 2)), (3, 2), (None, [])]
    for lower, upper in wrong:
        with pytest.raises(InvalidError):
            await writer.append([], lower=lower, upper=upper)
    with pytest.raises(InvalidError, match="columns"):
        await writer.append(many(3).select(["data"]), upper=3)
    assert lake.store.puts == []


async def test_updates_are_those_of_the_call(lake: Lake) -> None:
    writer = await lake.writer(Appends.DEFINITE)
    rows = [(b"a", 0, 1)]
    call = starts(writer.append(rows, upper=1))
    await asyncio.sleep(0)
    rows.append((b"b", 5, 1))
    await call[0]
    assert await lake.rows(["relay-a"]) == (frontier(1), [(b"a", 0, 1)])


async def test_definite_appends_are_pipelined(lake: Lake) -> None:
    writer = await lake.writer(Appends.DEFINITE, flush_parallelism=5)
    lake.store.hold = True
    calls = starts(*(writer.append([(b"a", t, 1)], lower=t, upper=t + 1) for t in range(9)))
    await until(lambda: len(lake.store.held) == 5, "five are in flight")
    await settle()
    assert (lake.store.most_in_flight, writer.upper) == (5, frontier(0))
    lake.store.release()
    await asyncio.gather(*calls)
    assert await lake.rows(["relay-a"]) == (frontier(9), [(b"a", t, 1) for t in range(9)])


async def test_after_a_failure_appends_go_on_from_what_is_acknowledged(lake: Lake) -> None:
    writer = await lake.writer(Appends.DEFINITE)
    await writer.append([], upper=1)

    def fail(key: str) -> UnavailableError | None:
        return UnavailableError("lost", outcome="not_applied") if "02_" in key.split("batch_")[1] else None

    lake.store.fail_before = fail
    calls = starts(*(writer.append([(b"a", t, 1)], lower=t, upper=t + 1) for t in range(1, 5)))
    await asyncio.wait(calls)
    outcomes = [getattr(call.exception(), "outcome", None) for call in calls]
    assert outcomes == [None, "not_applied", "unknown", "unknown"]
    assert writer.upper == frontier(2)
    lake.store.fail_before = lambda key: None
    await writer.append([(b"a", t, 1) for t in range(2, 6)], upper=6)
    assert await lake.rows(["relay-a"]) == (frontier(6), [(b"a", t, 1) for t in range(1, 6)])


@pytest.mark.parametrize("appends", KINDS)
@pytest.mark.parametrize("fault", [None, "request lost", "answer lost", "refused"])
async def test_an_append_may_be_cancelled_at_every_await(lake: Lake, appends: Appends, fault: str | None) -> None:
    """All of it is in, or nothing, and the writer goes on."""
    upper = 0
    for turns in range(0, 40, 8 if isinstance(lake.store.inner, LocalStore) else 1):
        writer = await lake.writer(appends)
        assert writer.upper == frontier(upper)
        next_put(lake.store, fault)
        data: Any = [(b"first %d" % turns, upper, 1)]
        call = asyncio.ensure_future(writer.append(data, upper=upper + 1))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        await writer.close()
        next_put(lake.store, None)
        found, rows = await lake.rows([shard(appends)])
        if not call.cancelled():
            assert call.result() is None
            assert found == frontier(upper + 1)
        assert (data[0] in rows) is (found == frontier(upper + 1))
        upper = found.elements[0][0]
        writer = await lake.writer(appends)
        await writer.append([(b"then", upper, 1)], upper=upper + 1)
        await writer.close()
        upper += 1


@pytest.mark.parametrize("appends", KINDS)
async def test_a_large_batch_may_be_cancelled_at_every_await(lake: Lake, appends: Appends) -> None:
    lake.knobs["part_bytes"] = 2_000
    rows = [(b"%06d" % number, 0, 1) for number in range(300)]
    upper = 0
    for turns in range(0, 60, 12 if isinstance(lake.store.inner, LocalStore) else 2):
        writer = await lake.writer(appends)

        async def append(writer: Any = writer, upper: int = upper) -> None:
            async with writer.batch(upper=upper + 1) as batch:
                for start in range(0, 300, 50):
                    await batch.add([(data, upper, 1) for data, _, _ in rows[start : start + 50]])

        call = asyncio.ensure_future(append())
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        await writer.close()
        found, contents = await lake.rows([shard(appends)])
        assert call.cancelled() or found == frontier(upper + 1)
        assert len(contents) == found.elements[0][0] * 300
        upper = found.elements[0][0]


@pytest.mark.parametrize("appends", list(Appends))
async def test_an_acknowledged_append_pokes_readers(lake: Lake, appends: Appends) -> None:
    writer = await lake.writer(appends)
    pokes = writer._context.pokes
    await writer.append([(b"a", 1, 1)], upper=5)
    assert pokes.count == 1
    async with writer.batch(upper=9) as batch:
        await batch.add([(b"b", 6, 1)])
    assert pokes.count == 2
