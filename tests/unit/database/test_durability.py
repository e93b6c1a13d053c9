"""When a write counts as durable: order of acknowledgement, width of the window, outcomes of failures, levels."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.errors import Outcome, UnavailableError
from slate_async.objectstore.protocol import Create, Overwrite
from tests.engine import (
    CONTIGUOUS,
    EPOCHS,
    EPOCHS_SST,
    KINDS,
    Kind,
    StoreInHand,
    abandon,
    contents,
    memory_store,
    open_db,
    settle,
    starts,
    until,
)

FAST = {"flush_interval_ms": 0, "retry_deadline_ms": 300, "request_timeout_ms": 200}


def in_hand() -> StoreInHand:
    return StoreInHand(memory_store())


def data_keys(store: StoreInHand) -> list[str]:
    """Names of log objects that hold rows, in the order their puts began."""
    return [put.key for put in store.puts if put.size > 80]


async def test_a_write_waits_for_its_object(kind: Kind) -> None:
    store = in_hand()
    async with open_db(store, kind) as db:
        store.hold = True
        handle = await db.put(b"a", b"1", await_durable=False)
        (waiting,) = starts(db.put(b"b", b"2"))
        await until(lambda: bool(store.held), "the put")
        await settle()
        assert not handle.is_durable
        assert not waiting.done()
        assert await db.get(b"a") == b"1"
        assert await db.get(b"a", durable=True) is None
        assert await contents(db) == {b"a": b"1", b"b": b"2"}
        assert [pair async for pair in db.scan(durable=True)] == []
        assert await db.get_many([b"a"], durable=True) == [None]
        assert await db.get_row(b"a", durable=True) is None
        async with db.snapshot(durable=True) as old:
            store.release()
            assert (await waiting).is_durable
            await handle.durable()
            await handle.durable()
            assert await old.get(b"a") is None
        assert await db.get_many([b"a", b"b"], durable=True) == [b"1", b"2"]
        assert repr(handle) == "<WriteHandle seq=1 durable>"


async def test_durable_reads_see_the_older_durable_version(kind: Kind) -> None:
    store = in_hand()
    async with open_db(store, kind) as db:
        await db.put(b"a", b"old")
        await db.put(b"gone", b"still there")
        store.hold = True
        await db.put(b"a", b"new", await_durable=False)
        await db.delete(b"gone", await_durable=False)
        await settle()
        assert await db.get(b"a", durable=True) == b"old"
        assert {key: value async for key, value in db.scan(durable=True)} == {b"a": b"old", b"gone": b"still there"}
        assert await contents(db) == {b"a": b"new"}
        store.release()
        await db.flush()
        assert {key: value async for key, value in db.scan(durable=True)} == {b"a": b"new"}


async def test_objects_that_land_early_acknowledge_nothing(kind: Kind) -> None:
    store = in_hand()
    async with open_db(store, kind, flush_parallelism=3, **FAST) as db:
        store.hold = True
        puts = []
        for number in range(3):
            puts += starts(db.put(b"%d" % number, b"v"))
            await until(lambda wanted=number + 1: len(store.held) == wanted, "one object for each put")  # type: ignore[misc]
        first, second, third = store.held
        store.release(third)
        await settle()
        store.release(second)
        await settle()
        assert [put.done() for put in puts] == [False] * 3
        assert db.status().durable_seq == 0
        assert await contents(db) != {}
        assert [pair async for pair in db.scan(durable=True)] == []
        done: list[int] = []
        for number, put in enumerate(puts):
            put.add_done_callback(lambda _, number=number: done.append(number))  # type: ignore[misc]
        store.release(first)
        await asyncio.gather(*puts)
        assert done == [0, 1, 2]
        assert db.status().durable_seq == 3
        store.release()


async def test_a_failed_object_fails_all_later_ones(kind: Kind) -> None:
    store = in_hand()
    db = await open_db(store, kind, flush_parallelism=3, **FAST)
    store.hold = True
    puts = []
    for number in range(3):
        puts += starts(db.put(b"%d" % number, b"v"))
        await until(lambda wanted=number + 1: len(store.held) == wanted, "one object for each put")  # type: ignore[misc]
    first, second, third = store.held
    store.fail_before = lambda key: UnavailableError("no", outcome="unknown") if key == second else None
    store.release(third)
    await settle()
    store.release(first)
    store.release(second)
    store.hold = False
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert isinstance(results[0], slate.WriteHandle)
    for result in results[1:]:
        assert isinstance(result, slate.UnavailableError)
        assert result.outcome == "unknown"
    await db.close()
    with pytest.raises(slate.ClosedError):
        await db.wait_closed()
    store.fail_before = lambda key: None
    async with open_db(store, kind) as again:
        found = await contents(again)
        assert found[b"0"] == b"v"
        # an object after the failed one is out, or, where a takeover inherits it, behind nothing missing
        assert b"2" not in found


async def test_the_window_is_never_wider_than_its_parallelism(kind: Kind) -> None:
    store = in_hand()
    async with open_db(store, kind, flush_parallelism=3, **FAST) as db:
        store.most_in_flight = 0
        store.hold = True
        puts = []
        for number in range(8):
            puts += starts(db.put(b"%d" % number, b"v"))
            await settle(60)
        assert len(store.held) == 3
        landed_first, *_ = store.held
        names = sorted(store.held)
        # the last two land, the first does not: the window stays shut, for it counts from the lowest unresolved id
        for name in names[1:]:
            store.release(name)
        await settle(60)
        assert list(store.held) == [landed_first]
        store.release()
        await asyncio.gather(*puts)
        assert store.most_in_flight == 3
        assert db.metrics()["log.window_waits"] > 0


async def test_log_objects_are_put_if_absent_once_each(kind: Kind) -> None:
    store = in_hand()
    async with open_db(store, kind) as db:
        for number in range(5):
            await db.put(b"%d" % number, b"v")
    keys = data_keys(store)
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys) == 5
    wanted = Create if kind.log_protocol == "contiguous" else Overwrite
    assert all(isinstance(put.mode, wanted) for put in store.puts if put.size > 80)


@pytest.mark.parametrize("l0_too", [False, True])
async def test_concurrent_writes_share_objects(kind: Kind, l0_too: bool) -> None:
    store = in_hand()
    async with open_db(store, kind) as db:
        await asyncio.gather(*(db.put(b"%d" % number, b"v") for number in range(200)))
        await db.flush(l0=l0_too)
        assert len(data_keys(store)) <= 5


async def test_a_write_whose_response_is_lost_is_acknowledged(kind: Kind) -> None:
    store = in_hand()
    async with open_db(store, kind, **{**FAST, "retry_deadline_ms": 5000}) as db:
        lost: list[str] = []

        def lose_once(key: str) -> Exception | None:
            if key in lost:
                return None
            lost.append(key)
            return UnavailableError("response lost", outcome="unknown")

        store.fail_after = lose_once
        for number in range(3):
            assert (await db.put(b"%d" % number, b"v")).is_durable
    assert len(lost) >= 3
    async with open_db(store, kind) as db:
        assert await contents(db) == {b"0": b"v", b"1": b"v", b"2": b"v"}
        assert db.status().last_seq == 3  # none applied twice


@pytest.mark.parametrize("outcome", ["not_applied", "unknown"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_that_fails_for_good_closes_the_database(kind: Kind, when: str, outcome: Outcome) -> None:
    store = in_hand()
    db = await open_db(store, kind, **FAST)
    await db.put(b"good", b"1")
    real = store.inner

    def fail(key: str) -> Exception | None:
        return UnavailableError("the store is down", outcome=outcome)

    broken = StoreInHand(real)
    store.fail_before, store.fail_after = (fail, store.fail_after) if when == "before" else (store.fail_before, fail)
    if when == "after":  # and nobody can tell that it landed
        get = store.inner.get
        store.inner.get = _never  # type: ignore[method-assign]
    puts = starts(db.put(b"a", b"1"), db.put(b"b", b"1"))
    await asyncio.wait(puts)
    for put in puts:
        error = put.exception()
        assert isinstance(error, slate.UnavailableError)
        assert error.outcome in ("unknown", "not_applied")
    sent = puts[0].exception()
    assert isinstance(sent, slate.SlateError)
    assert sent.outcome == "unknown"
    with pytest.raises(slate.ClosedError) as caught:
        await db.put(b"c", b"1")
    assert caught.value.outcome == "not_applied"
    with pytest.raises(slate.ClosedError):
        await db.get(b"good")
    assert db.status().state == "failed"
    with pytest.raises(slate.ClosedError) as closed:
        await db.wait_closed()
    assert isinstance(closed.value.__cause__, slate.UnavailableError)
    await db.close()
    if when == "after":
        real.get = get  # type: ignore[method-assign]
    async with open_db(broken, kind) as again:
        assert await again.get(b"good") == b"1"
        assert await again.get(b"c") is None


async def _never(*_: object) -> None:
    raise UnavailableError("the store is down")


async def test_writes_never_sent_are_known_not_to_be_in(kind: Kind) -> None:
    store = in_hand()
    db = await open_db(store, kind, flush_parallelism=1, **FAST)
    store.hold = True
    (first,) = starts(db.put(b"a", b"1"))
    await until(lambda: bool(store.held), "the first object")
    (second,) = starts(db.put(b"b", b"2"))
    await settle()
    store.fail_before = lambda key: UnavailableError("down", outcome="not_applied")
    store.release()
    await asyncio.wait([first, second])
    outcomes = []
    for put in (first, second):
        error = put.exception()
        assert isinstance(error, slate.UnavailableError)
        outcomes.append(error.outcome)
    assert outcomes == ["unknown", "not_applied"]
    await db.close()


async def test_nothing_is_sent_once_it_was_declared_not_written(kind: Kind) -> None:
    store = StoreInHand(memory_store())
    db = await open_db(store, kind)
    store.hold = True
    await db.put(b"a", b"1", await_durable=False)
    await settle()
    handle = await db.put(b"b", b"2", await_durable=False)
    db._writer.flusher.force()  # its task runs before the tasks are stopped
    in_flight = db.status().flushes_in_flight
    db._fail(slate.UnavailableError("the store is gone"))
    with pytest.raises(slate.UnavailableError) as failure:
        await handle.durable()
    assert failure.value.outcome == "not_applied"
    await settle()
    assert db.status().flushes_in_flight == in_flight


async def test_closing_tells_of_lost_writes_nobody_waited_for(kind: Kind) -> None:
    store = in_hand()
    db = await open_db(store, kind, **FAST)
    store.fail_before = lambda key: UnavailableError("down", outcome="not_applied")
    await db.put(b"a", b"1", await_durable=False)
    with pytest.raises(slate.UnavailableError) as caught:
        await db.close()
    assert caught.value.outcome == "unknown"
    await db.close()
    store = in_hand()
    db = await open_db(store, kind, **FAST)
    store.fail_before = lambda key: UnavailableError("down", outcome="not_applied")
    handle = await db.put(b"a", b"1", await_durable=False)
    with pytest.raises(slate.UnavailableError):
        await handle.durable()
    await db.close()  # the writer got the error


async def test_closing_raises_a_lost_write_though_others_were_waited_for(kind: Kind) -> None:
    """Two waits for one write, an empty batch's handle and a flush are no word to the other one's writer."""
    store = in_hand()
    db = await open_db(store, kind, **FAST)
    store.fail_before = lambda key: UnavailableError("down", outcome="not_applied")
    heard = await db.put(b"a", b"1", await_durable=False)
    unheard = await db.put(b"b", b"1", await_durable=False)
    empty = await db.write(slate.WriteBatch(), await_durable=False)
    for waiting in (heard.durable(), heard.durable(), empty.durable(), db.flush()):
        with pytest.raises(slate.SlateError):
            await waiting
    with pytest.raises(slate.UnavailableError) as caught:
        await db.close()
    assert caught.value.outcome == "unknown"
    assert not unheard.is_durable


async def test_a_write_may_be_abandoned_and_still_goes_in(kind: Kind) -> None:
    store = in_hand()
    async with open_db(store, kind) as db:
        store.hold = True
        (put,) = starts(db.put(b"a", b"1"))
        await until(lambda: bool(store.held), "the put")
        put.cancel()
        await asyncio.wait([put])
        assert put.cancelled()
        store.release()
        await db.flush()
        assert await db.get(b"a", durable=True) == b"1"


async def test_a_write_waiting_for_room_is_out_when_cancelled_and_in_later(kind: Kind) -> None:
    store = in_hand()
    async with open_db(store, kind, max_unflushed_bytes=2000, flush_bytes=500) as db:
        store.hold = True
        await db.put(b"big", b"x" * 1500, await_durable=False)
        out, staying = starts(db.put(b"out", b"x" * 500), db.put(b"staying", b"y" * 500))
        await settle()
        assert db.status().waiting_writes == 2
        out.cancel()
        await settle()
        assert db.status().waiting_writes == 1
        store.release()
        await staying
        assert out.cancelled()
        assert await db.get(b"out") is None
        assert await db.get(b"staying") == b"y" * 500
        assert db.metrics()["backpressure.stalls"] >= 2
        await db.flush(l0=True)
        assert db.status().unflushed_bytes == 0


async def test_waiting_writes_get_in_whatever_their_size(kind: Kind) -> None:
    """Large and small ones queue; each gets its turn although nobody comes after the last of them."""
    limits = {"max_unflushed_bytes": 4000, "l0_sst_bytes": 4000, "skip_memtable_bytes": 4000}
    async with open_db(memory_store(), kind, **limits) as db:
        async with asyncio.timeout(20):
            sizes = [10, 3000, 9000, 10, 2000, 50_000, 10, 3500, 3500, 20_000]
            await asyncio.gather(*(db.put(b"%d" % n, bytes(size)) for n, size in enumerate(sizes)))
        assert {key: len(value) for key, value in (await contents(db)).items()} == {
            b"%d" % n: size for n, size in enumerate(sizes)
        }
        assert db.status().waiting_writes == 0


async def test_a_batch_larger_than_the_limit_goes_alone(kind: Kind) -> None:
    store = in_hand()
    async with open_db(store, kind, max_unflushed_bytes=3000) as db:
        batch = slate.WriteBatch()
        for number in range(50):
            batch.put(b"%03d" % number, bytes(100))
        store.hold = True
        before = await db.put(b"before", b"", await_durable=False)
        writing, after = starts(db.write(batch), db.put(b"zzz", b"after"))
        await settle()
        assert db.status().waiting_writes == 2
        assert not before.is_durable
        store.release()
        async with asyncio.timeout(20):
            await asyncio.gather(writing, after)
        assert len(await contents(db)) == 52
        assert writing.result().seq == 51


async def test_a_large_value_is_an_object_of_its_own(kind: Kind) -> None:
    store = in_hand()
    async with open_db(store, kind, skip_memtable_bytes=1000, **FAST) as db:
        store.hold = True
        puts = starts(db.put(b"a", b"1"), db.put(b"large", bytes(5000)), db.put(b"b", b"2"))
        await until(lambda: len(store.held) == 3, "three objects")
        store.release()
        await asyncio.gather(*puts)
        await db.flush(l0=True)
        assert db.metrics()["log.flushes"] == 3
        assert db.status().l0_ssts == 3
        batch = slate.WriteBatch()
        batch.put(b"c", b"3")
        batch.put(b"larger", bytes(9000))
        await db.write(batch)
        assert len(await contents(db)) == 5
    async with open_db(store, kind) as db:
        assert {key: len(value) for key, value in (await contents(db)).items()} == {
            b"a": 1,
            b"b": 1,
            b"c": 1,
            b"large": 5000,
            b"larger": 9000,
        }


# acknowledgement levels of the epoch-prefixed log


@pytest.mark.parametrize("kind", [EPOCHS, EPOCHS_SST], ids=str)
@pytest.mark.parametrize("ack", ["committed", "flushed"])
async def test_acknowledgement_levels(kind: Kind, ack: str) -> None:
    register = StoreInHand(memory_store(), watch="writer/")
    async with open_db(register, kind, ack=ack) as db:
        register.hold = True
        (put,) = starts(db.put(b"a", b"1"))
        await until(lambda: bool(register.held), "the register's update")
        await settle()
        assert put.done() == (ack == "flushed")
        assert (await db.get(b"a", durable=True) is not None) == (ack == "flushed")
        register.release()
        await put
        await db.flush(l0=True)
        assert await db.get(b"a", durable=True) == b"1"


@pytest.mark.parametrize("kind", [EPOCHS, EPOCHS_SST], ids=str)
async def test_one_update_commits_all_that_landed(kind: Kind) -> None:
    register = StoreInHand(memory_store(), watch="writer/")
    async with open_db(register, kind, **FAST) as db:
        before = len(register.puts)
        register.hold = True
        puts = starts(db.put(b"0", b"v"))
        await until(lambda: bool(register.held), "the register's update")
        for number in range(1, 4):
            puts += starts(db.put(b"%d" % number, b"v"))
            await settle(60)
        assert len(register.held) == 1  # one in flight
        register.release()
        await asyncio.gather(*puts)
        assert len(register.puts) == before + 2


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_l0_takes_only_what_is_published(kind: Kind) -> None:
    """An SST must not run ahead of the log: what it holds is acknowledged (and committed) first."""
    watch = "log/" if kind.log_protocol == "contiguous" else "writer/"
    store = StoreInHand(memory_store(), watch=watch)
    async with open_db(store, kind) as db:
        store.hold = True
        await db.put(b"a", b"1", await_durable=False)
        (flushing,) = starts(db.flush(l0=True))
        await until(lambda: bool(store.held), "the held put")
        await settle()
        assert not flushing.done()
        assert [info.key async for info in store.list("sst/")] == []
        store.release()
        await flushing
        assert db.status().l0_ssts == 1


# crashes


async def test_what_was_acknowledged_survives_a_crash(kind: Kind) -> None:
    store = in_hand()
    expected: dict[bytes, bytes] = {}
    for generation in range(5):
        db = await open_db(store, kind, flush_parallelism=2, l0_sst_bytes=1500, block_bytes=200, **FAST)
        assert {key: value for key, value in (await contents(db)).items() if value != b"lost"} == expected
        puts = starts(*(db.put(b"%d.%d" % (generation, n), b"v" * n) for n in range(20)))
        await asyncio.gather(*puts)
        expected.update({b"%d.%d" % (generation, n): b"v" * n for n in range(20)})
        store.hold = True
        await db.put(b"never %d" % generation, b"lost", await_durable=False)
        await settle()
        await abandon(db)
        store.hold = False
        store.held.clear()


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_folder_and_memory_agree_on_a_crash_in_the_middle_of_a_flush(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "db"
    db = await slate.open(path, settings=kind.settings())
    await db.put(b"a", b"1")
    await abandon(db)
    async with slate.open(str(path), settings=kind.settings()) as again:
        assert await contents(again) == {b"a": b"1"}
