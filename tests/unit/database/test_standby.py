"""A standby: when it takes over, which writer it fences, and what it does meanwhile. And how a writer learns of its
end."""

from __future__ import annotations

import asyncio

import pytest

import slate_async as slate
from slate_async.engine.write.errors import TWO_WRITERS
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.storage.format.heartbeat import decode_beat
from slate_async.storage.liveness.heartbeat import ALIVE_KEY
from tests.engine import Kind, StoreInHand, abandon, contents, open_db, until

SETTINGS = {"manifest_poll_interval_ms": 5, "flush_interval_ms": 1}


def standby(store: ObjectStore, kind: Kind, **settings: int) -> asyncio.Future[slate.Db]:
    """A standby's opening, under way."""
    return asyncio.ensure_future(_opened(open_db(store, kind, standby=True, **{**SETTINGS, **settings})))


async def _opened(opening: slate.Opening[slate.Db]) -> slate.Db:
    return await opening


async def test_without_a_writer_it_opens_at_once(memory: MemoryStore, kind: Kind) -> None:
    first = await standby(memory, kind)
    await first.put(b"a", b"1")
    await first.close()
    second = await standby(memory, kind)
    assert (second.status().epoch, await contents(second)) == (2, {b"a": b"1"})
    await second.close()


async def test_it_takes_over_when_the_writer_closes(memory: MemoryStore, kind: Kind) -> None:
    writer = await open_db(memory, kind, **SETTINGS)
    waiting = standby(memory, kind)
    for number in range(20):
        await writer.put(b"%d" % number, b"v")
        await asyncio.sleep(0.005)
    assert not waiting.done()
    await writer.close()
    db = await waiting
    assert len(await contents(db)) == 20
    await db.close()


async def test_it_takes_over_when_the_beats_stand_still_and_not_before(memory: MemoryStore, kind: Kind) -> None:
    writer = await open_db(memory, kind, heartbeat_interval_ms=100, **SETTINGS)
    waiting = standby(memory, kind, heartbeat_interval_ms=100)
    await writer.put(b"a", b"1")
    for beats in (1, 6):  # longer than three intervals, and idle
        await until(lambda beats=beats: _beat(memory) >= beats, "beats")  # type: ignore[misc]
        assert not waiting.done()
    assert writer.status().state == "open"
    await abandon(writer)
    db = await waiting
    assert (db.status().epoch, await contents(db)) == (2, {b"a": b"1"})
    await db.close()


def _beat(memory: MemoryStore) -> int:
    stored = memory._data.objects.get(ALIVE_KEY)
    return 0 if stored is None else decode_beat(bytes(stored[1]), object_name=ALIVE_KEY).number


async def test_of_two_standbys_one_takes_over_and_the_other_fences_nobody(memory: MemoryStore, kind: Kind) -> None:
    writer = await open_db(memory, kind, **SETTINGS)
    both = [standby(memory, kind), standby(memory, kind)]
    await writer.close()
    done, waiting = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    [first] = [task.result() for task in done]
    await first.put(b"a", b"1")
    await asyncio.sleep(0.1)
    assert not any(opening.done() for opening in waiting)
    assert first.status().state == "open"
    await first.close()
    [second] = await asyncio.gather(*waiting)
    assert (second.status().epoch, await contents(second)) == (3, {b"a": b"1"})
    await second.close()


async def test_of_standbys_that_create_a_database_one_is_its_writer(memory: MemoryStore, kind: Kind) -> None:
    both = [standby(memory, kind), standby(memory, kind)]
    done, waiting = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    [first] = [task.result() for task in done]
    await first.put(b"a", b"1")
    await asyncio.sleep(0.05)
    assert not any(opening.done() for opening in waiting)
    await first.close()
    [second] = await asyncio.gather(*waiting)
    assert await contents(second) == {b"a": b"1"}
    await second.close()


async def test_a_writer_that_was_fenced_and_one_that_failed_to_open_beat_no_more(memory: MemoryStore) -> None:
    fast = {**SETTINGS, "heartbeat_interval_ms": 5}
    older = await open_db(memory, **fast)
    newer = await open_db(memory, **fast)
    with pytest.raises(slate.FencedError):
        await older.wait_closed()
    await abandon(newer)
    await asyncio.sleep(0)
    before = _beat(memory)
    await asyncio.sleep(0.05)
    assert _beat(memory) == before
    await older.close()


async def test_while_it_waits_it_may_be_cancelled(memory: MemoryStore, kind: Kind) -> None:
    async with open_db(memory, kind, **SETTINGS) as writer:
        waiting = standby(memory, kind)
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await writer.put(b"a", b"1")


@pytest.mark.parametrize("while_it", ["commits its claim", "fences the log"])
async def test_one_that_is_cancelled_after_its_claim_keeps_nobody_waiting(
    memory: MemoryStore, kind: Kind, while_it: str
) -> None:
    """Its pin looked like a writer's that lives until it has not beaten for three intervals: here those of a day."""
    slow = {**SETTINGS, "heartbeat_interval_ms": 86_400_000 // 3}
    async with open_db(memory, kind, **slow) as writer:
        await writer.put(b"a", b"1")
    log = "writer/" if kind.log_protocol == "epoch_prefixed" else "log/"
    store = StoreInHand(memory, watch="manifest/" if while_it == "commits its claim" else log)
    store.hold = True
    waiting = standby(store, kind, **slow)
    await until(lambda: bool(store.held), "what it does after its claim")
    waiting.cancel()
    await asyncio.sleep(0.01)
    store.release()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(20):
        db = await standby(memory, kind, **slow)
    assert (db.status().epoch, await contents(db)) == (3, {b"a": b"1"})
    await db.close()


async def test_it_goes_on_waiting_while_the_store_does_not_answer(
    memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await open_db(memory, heartbeat_interval_ms=50, **SETTINGS)
    waiting = standby(memory, Kind("contiguous", True), heartbeat_interval_ms=50, retry_deadline_ms=20)
    await asyncio.sleep(0.05)

    def no_answer(*_: object, **__: object) -> None:
        raise slate.UnavailableError("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(MemoryStore, "list", no_answer)
        await asyncio.sleep(0.3)
    assert not waiting.done()
    await until(lambda: writer.status().state == "open", "the writer")
    await writer.close()
    await (await waiting).close()


async def test_it_goes_on_when_the_store_goes_away_while_it_takes_over(memory: MemoryStore, kind: Kind) -> None:
    """Its own claims, of which nobody makes use, are no writer's that it would have to wait for."""
    async with open_db(memory, kind, **SETTINGS) as writer:
        await writer.put(b"a", b"1")
    store = StoreInHand(memory, watch="writer/" if kind.log_protocol == "epoch_prefixed" else "log/")
    store.fail_before = lambda key: slate.UnavailableError("no answer", outcome="not_applied")
    waiting = standby(store, kind, takeover_deadline_ms=100, retry_deadline_ms=50, request_timeout_ms=50)
    await until(lambda: waiting.done() or len(_versions(memory)) > 6, "claims")
    assert not waiting.done()
    store.fail_before = lambda key: None
    db = await waiting
    assert (db.status().epoch > 3, await contents(db)) == (True, {b"a": b"1"})
    await db.put(b"b", b"1")
    await db.close()


def _versions(memory: MemoryStore) -> list[str]:
    return [key for key in memory._data.objects if key.startswith("manifest/")]


async def test_a_writer_learns_of_its_end_at_once_and_what_to_do(
    memory: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = StoreInHand(memory)
    older = await open_db(store, **SETTINGS)
    waiting = asyncio.ensure_future(older.wait_closed())
    store.hold = True
    lost = await older.put(b"a", b"1", await_durable=False)
    async with open_db(memory, **SETTINGS) as newer:
        with pytest.raises(slate.FencedError) as raised:
            await waiting
        assert TWO_WRITERS in str(raised.value)
        assert TWO_WRITERS in caplog.text
        assert "open_reader" in TWO_WRITERS
        assert "standby=True" in TWO_WRITERS
        with pytest.raises(slate.FencedError):
            await lost.durable()
        await newer.put(b"b", b"2")
    store.release()
    await older.close()


async def test_a_reader_tells_whether_a_writer_lives(memory: MemoryStore, kind: Kind) -> None:
    async with open_db(memory, kind, **SETTINGS, heartbeat_interval_ms=20) as writer:
        reader = await slate.open_reader(memory, name="memory://test", settings=kind.settings(), pin=False)
        life = await reader.writer_life()
        assert (life.state, life.epoch, life.interval_ms) == ("unknown", writer.status().epoch, 20)
        async with asyncio.timeout(20):
            while (await reader.writer_life()).state != "alive":  # noqa: ASYNC110 - each look is one of the test's
                await asyncio.sleep(0.002)
    assert (await reader.writer_life()).state == "closed"
    await reader.close()
