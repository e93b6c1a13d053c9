"""Several relays of one collection, stores that lose requests and answers, and feeds whose history begins later."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.bridges import relay as relaying
from slate_async.bridges import relay_run
from slate_async.bridges.envelopes import relay_schema
from slate_async.bridges.relay import Relay, relay
from slate_async.objectstore.protocol import ObjectStore
from tests.engine import StoreInHand, memory_store, on, open_reader, runtime, until
from tests.unit.bridges.conftest import Town
from tests.unit.bridges.shelf import Shelf


async def persistent(made: Relay, end: int) -> None:
    """As a service does: after an error of the store it runs again."""
    while True:
        try:
            return await made.run(until=end)
        except slate.UnavailableError:
            continue


def chaotic(store: ObjectStore, rng: random.Random) -> StoreInHand:
    """Puts of batches fail for certain, or lose their request or their answer."""

    def fail(key: str, share: float) -> Exception | None:
        if "pending_batches" not in key or rng.random() >= share:
            return None
        return slate.UnavailableError("no answer from the store", outcome="unknown")

    return StoreInHand(store, "", fail_before=lambda key: fail(key, 0.2), fail_after=lambda key: fail(key, 0.2))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("envelope", ["log", "upsert"])
async def test_standbys_on_a_store_that_loses_answers_write_each_change_once(
    town: Town, seed: int, envelope: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three relays, one of them beside a reader; one is killed and started again, all while rows are written."""
    monkeypatch.setattr(relay_run, "BATCH_ROWS", 3)
    rng = random.Random(seed)
    town.shelf = Shelf(relay_schema(envelope), chaotic(memory_store(), rng))
    end = 120

    async def write() -> None:
        while town.seq < end:
            await town.busy(rng, rng.randrange(4))
            await asyncio.sleep(rng.choice((0, 0, 0.001, 0.01)))

    async def stumbling(made: Relay) -> None:
        while made.upper.elements[0][0] <= end:
            run = asyncio.create_task(persistent(made, end + 1))
            await asyncio.wait([run], timeout=rng.choice((0.0, 0.01, 0.03)))
            run.cancel()
            await asyncio.wait([run])

    store = town.db._context.store
    async with open_reader(store, manifest_poll_interval_ms=5) as reader, asyncio.timeout(60):
        beside = relay(reader, "relay-c", town.shelf, envelope=envelope)
        async with town.relay("relay-a", envelope) as first, town.relay("relay-b", envelope) as second, beside as third:
            await asyncio.gather(write(), persistent(first, end + 1), stumbling(second), persistent(third, end + 1))
    await town.caught_up("relay-a", envelope)
    if envelope == "upsert":
        await town.is_right()
        return
    rows = await town.shelf.at(town.seq)
    assert sum(rows.values()) == town.seq


async def test_a_standby_goes_on_when_the_first_one_ends(town: Town) -> None:
    async with town.relay("relay-a") as first, town.relay("relay-b") as second:
        runs = [asyncio.create_task(made.run()) for made in (first, second)]
        await town.write((b"a", b"0"))
        for made in (first, second):
            await until(lambda made=made: made.upper.elements == ((2,),), "both have begun")  # type: ignore[misc]
        before = second.metrics()["relay.rows"]
        for leaving in (0, 1):
            await town.busy(random.Random(leaving), 5)
            for made in (first, second)[leaving:]:
                await until(lambda made=made: made.upper.elements == ((town.seq + 1,),), "the relays")  # type: ignore[misc]
            runs[leaving].cancel()
        await asyncio.wait(runs)
        appends = [made.metrics()["relay.appends"] for made in (first, second)]
        rows = [made.metrics()["relay.rows"] for made in (first, second)]
        assert rows[1] - before == town.seq - 1, "the standby has read all, too"
        assert sum(appends) >= 2
    await town.is_right()


# ---- history that begins later


async def shortened(town: Town) -> None:
    """Some writes, of which the database keeps but what is there."""
    await town.write((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    await town.write((b"a", b"4"), (b"b", None))
    await town.db.compact(full=True)


@pytest.mark.parametrize("rows", [1, 65_536])
async def test_a_first_snapshot_is_there_from_its_number_on(
    forgetful: Town, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_run, "BATCH_ROWS", rows)
    town = forgetful
    await shortened(town)
    await town.write((b"a", b"5"))
    await town.caught_up()
    assert await town.shelf.values(4) == {}, "what there was then is not known"
    await town.is_right(5)


async def test_a_log_of_a_database_without_its_history_has_what_is_known(forgetful: Town) -> None:
    town = forgetful
    town.shelf = Shelf(relay_schema("log"))
    await shortened(town)
    await town.write((b"c", None))
    await town.caught_up(envelope="log")
    assert [(row[:3], diff) for row, diff in sorted((await town.shelf.at(6)).items(), key=str)] == [
        (("delete", b"c", None), 1),
        (("put", b"a", b"4"), 1),
        (("put", b"c", b"3"), 1),
    ]


async def test_a_snapshot_whose_last_rows_were_dropped_is_appended_at_once(forgetful: Town) -> None:
    town = forgetful
    await town.write((b"a", b"1"), (b"b", b"2"), (b"b", None))
    await town.db.compact(full=True)
    await town.caught_up()
    await town.is_right(3)


async def test_two_relays_whose_snapshots_differ_leave_one(forgetful: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one begins where history was compacted further; it loses the race, and follows the chain."""
    town, begun, gate = forgetful, asyncio.Event(), asyncio.Event()
    await shortened(town)
    async with town.relay("relay-a") as first, town.relay("relay-b") as second:
        enveloping = second._enveloping

        async def late() -> Any:
            begun.set()
            await gate.wait()
            return await enveloping()

        monkeypatch.setattr(second, "_enveloping", late)
        await town.write((b"d", b"6"))
        runs = [asyncio.create_task(second.run())]
        await begun.wait()
        runs.insert(0, asyncio.create_task(first.run()))
        await until(lambda: first.upper.elements == ((7,),), "the first")
        await town.write((b"d", b"7"))
        gate.set()
        for made in (first, second):
            await until(lambda made=made: made.upper.elements == ((8,),), "both")  # type: ignore[misc]
        await until(lambda: second.metrics()["relay.runs"] == 2, "the run that follows the chain")
        runs[0].cancel()
        await town.write((b"a", None))
        await until(lambda: second.upper.elements == ((9,),), "the second")
        runs[1].cancel()
        await asyncio.wait(runs)
    await town.is_right(5)


async def standby_behind_a_compaction(town: Town) -> None:
    """The collection ends at 6; the subscription of relay-b knows changes only after 7."""
    await shortened(town)
    await town.caught_up("relay-a")
    await town.write((b"a", b"6"), (b"b", b"6"))
    await town.lose_subscriptions()
    await town.db.compact(full=True)
    async with town.db.changes(subscription="relay-b") as feed:
        assert feed.snapshot_seq == 7
    await town.write((b"c", b"8"))


async def test_a_standby_that_lacks_changes_waits_for_another_relay(
    forgetful: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaying, "PAUSE_S", 0.01)
    town = forgetful
    await standby_behind_a_compaction(town)
    async with town.relay("relay-b") as made:
        run = asyncio.create_task(made.run(until=town.seq + 1))
        await asyncio.sleep(0.05)
        assert made.upper.elements == ((6,),)
        async with town.shelf.writer() as other:  # which knew what comes next
            await other.append([((b"a", b"4", None), 6, -1), ((b"a", b"6", None), 6, 1)], upper=7)
            await other.append([((b"b", b"6", None), 7, 1)], upper=8)
        await asyncio.wait_for(run, 10)
    await town.is_right(5)


async def test_a_standby_that_lacks_changes_gives_up_when_nothing_moves(
    forgetful: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaying, "PAUSE_S", 0.01)
    monkeypatch.setattr(relaying, "PATIENCE_S", 0.05)
    town = forgetful
    await standby_behind_a_compaction(town)
    with pytest.raises(slate.NotFoundError, match=r"orders ends at 6, but .* 'relay-b' knows changes only after 7"):
        await town.caught_up("relay-b")
    assert await town.shelf.upper() == 6


# ---- ingests


async def ingest(town: Town, rows: dict[bytes, bytes], *, replace: bool = False) -> None:
    """A bulk load beside the writer."""
    table = pa.record_batch({"key": pa.array(rows, pa.binary()), "value": pa.array(rows.values(), pa.binary())})
    settings = slate.Settings(manifest_poll_interval_ms=10, sst_bytes=300, block_bytes=64)
    opening = on(runtime()).open_ingest(
        town.db._context.store, replace=replace, name="memory://test", settings=settings
    )
    async with opening as job:
        await job.write([table])
        await job.commit(wait=False)
        await town.db.confirm()
        seq = (await job.wait()).seq
    assert seq == town.seq + 1
    town.seq, town.contents = seq, rows if replace else {**town.contents, **rows}
    town.history[seq] = town.contents


@pytest.mark.parametrize("rows", [4, 65_536])
@pytest.mark.parametrize("replace", [False, True])
async def test_the_rows_of_an_ingest_are_there_together(
    town: Town, rows: int, replace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_run, "BATCH_ROWS", rows)
    loaded = {b"%03d" % number: b"x" for number in range(30)}
    await town.write((b"000", b"1"), (b"a", b"2"))
    await ingest(town, loaded, replace=replace)
    await town.write((b"001", b"3"), (b"002", None))
    await town.caught_up()
    await town.is_right()


async def test_a_standby_that_comes_second_with_an_ingest_goes_on_behind_it(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_run, "BATCH_ROWS", 4)
    await town.write((b"000", b"1"))
    async with town.relay("relay-a") as first, town.relay("relay-b") as second:
        runs = [asyncio.create_task(made.run()) for made in (first, second)]
        await until(lambda: first.upper == second.upper and first.upper.elements == ((2,),), "both")
        await ingest(town, {b"%03d" % number: b"x" for number in range(30)})
        await town.write((b"000", b"3"))
        for made in (first, second):
            await until(lambda made=made: made.upper.elements == ((town.seq + 1,),), "both")  # type: ignore[misc]
        for run in runs:
            run.cancel()
        await asyncio.wait(runs)
    await town.is_right()


async def test_an_ingest_that_was_cut_short_comes_whole(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_run, "BATCH_ROWS", 4)
    await town.write((b"000", b"1"))
    await ingest(town, {b"%03d" % number: b"x" for number in range(30)})
    store = town.shelf.store
    town.shelf.store = StoreInHand(store, "", hold=False, fail_before=_lost)
    with pytest.raises(slate.UnavailableError):
        async with town.relay() as made:
            await made.run(until=town.seq + 1)
    town.shelf.store = store
    assert await town.shelf.upper() < 3
    await town.caught_up()
    await town.is_right()


def _lost(key: str) -> Exception | None:
    return slate.UnavailableError("no answer", outcome="unknown") if "pending_batches" in key else None
