"""`DatabaseRelay`: a collection kept in a database, exactly once, whatever becomes of its runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.bridges.envelopes import relay_schema
from slate_async.bridges.to_database import DatabaseRelay, relay_to_database
from slate_async.collections.core.frontier import DONE
from slate_async.collections.core.times import TimeKind
from slate_async.objectstore.memory import MemoryStore
from tests.engine import CONTIGUOUS, abandon, contents, memory_store, open_db, until
from tests.unit.bridges.conftest import Town
from tests.unit.bridges.shelf import Shelf

UPPER = b"relay/copy"


class Source:
    """A collection of keys and values, as one writer makes it."""

    def __init__(self) -> None:
        self.shelf = Shelf(relay_schema("upsert"))
        self.rows: dict[bytes, bytes] = {}
        self.time = 0
        self.history: dict[bytes, dict[bytes, bytes]] = {}  # by the upper behind it, as a relay writes it

    async def append(self, *changes: tuple[bytes, bytes | None]) -> None:
        """At one time each; then the collection ends behind them."""
        updates: list[tuple[Any, int, int]] = []
        for key, value in changes:
            if key in self.rows:
                updates.append(((key, self.rows.pop(key), None), self.time, -1))
            if value is not None:
                self.rows[key] = value
                updates.append(((key, value, None), self.time, 1))
            self.time += 1
            self.history[b"orders/1@%d" % self.time] = dict(self.rows)
        async with self.shelf.writer() as writer:
            await writer.append(updates, upper=self.time)

    async def busy(self, rng: random.Random, appends: int) -> None:
        for _ in range(appends):
            await self.append(*((b"%d" % rng.randrange(5), rng.choice((None, b"1", b"2"))) for _ in range(3)))

    async def compacted(self) -> None:
        """As far as the holds that stand allow, once another reader has read all."""
        await self.shelf.compacted(self.time)

    async def raw(self, *updates: tuple[Any, int, int]) -> None:
        """Whatever the test wants, until a time later."""
        self.time += 1
        async with self.shelf.writer() as writer:
            await writer.append(list(updates), upper=self.time)

    async def is_in(self, db: slate.Readable) -> None:
        found = await contents(db)
        assert found.pop(UPPER) == b"orders/1@%d" % self.time
        assert found == self.rows


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def store() -> MemoryStore:
    return memory_store()


@pytest.fixture
async def db(store: MemoryStore) -> AsyncIterator[slate.Db]:
    async with open_db(store) as opened:
        yield opened


async def copy(source: Source, db: slate.Db) -> DatabaseRelay:
    """Bring ``db`` to where the collection ends."""
    async with relay_to_database(source.shelf, db, "copy") as made, asyncio.timeout(20):
        await made.run(until=source.time)
    return made


async def test_the_database_is_what_the_collection_is(source: Source, db: slate.Db) -> None:
    rng = random.Random(2)
    for _ in range(4):
        await source.busy(rng, 4)
        made = await copy(source, db)
        await source.is_in(db)
    assert made.upper.elements == ((source.time,),)
    assert made.metrics()["database_relay.upper"] == source.time
    assert made.metrics()["database_relay.deltas"] >= 1


async def test_each_upper_is_in_the_batch_that_leads_to_it(source: Source, db: slate.Db) -> None:
    async with db.changes(from_seq=0) as feed:
        async with relay_to_database(source.shelf, db, "copy") as made:
            run = asyncio.create_task(made.run())
            for _ in range(5):
                await source.append((b"a", b"%d" % source.time), (b"b", b"%d" % source.time))
                await until(lambda: made.upper.elements == ((source.time,),), "the relay")
            run.cancel()
        found: dict[bytes, bytes] = {}
        async for change in feed:
            if change.key == UPPER:
                assert found == source.history[change.value or b""]
                if change.value == b"orders/1@%d" % source.time:
                    break
            elif change.value is not None:
                found[change.key] = change.value


async def test_runs_that_are_cancelled_anywhere_apply_each_delta_once(source: Source, db: slate.Db) -> None:
    rng = random.Random(3)
    async with relay_to_database(source.shelf, db, "copy") as made:
        for _ in range(40):
            run = asyncio.create_task(made.run())
            await source.busy(rng, 1)
            for _ in range(rng.randrange(200)):
                await asyncio.sleep(0)
            run.cancel()
            await asyncio.wait([run])
            assert run.cancelled()
    await copy(source, db)
    await source.is_in(db)


async def test_a_relay_of_a_process_that_was_fenced_changes_nothing(source: Source, store: MemoryStore) -> None:
    zombie = await open_db(store, CONTIGUOUS)
    await source.busy(random.Random(4), 3)
    await copy(source, zombie)
    async with open_db(store) as db:
        await source.busy(random.Random(5), 3)
        await copy(source, db)
        await source.busy(random.Random(6), 1)
        with pytest.raises(slate.FencedError):
            await copy(source, zombie)
        await copy(source, db)
        await source.is_in(db)
    await abandon(zombie)


async def test_a_database_that_was_killed_goes_on_where_it_is_durable(source: Source, store: MemoryStore) -> None:
    for seed in range(4):
        killed = await open_db(store)
        async with relay_to_database(source.shelf, killed, "copy") as made:
            run = asyncio.create_task(made.run())
            await source.busy(random.Random(seed), 3)
            await asyncio.sleep(0.01 * seed)
            await abandon(killed)
            run.cancel()
            await asyncio.wait([run])
    async with open_db(store) as db:
        await copy(source, db)
        await source.is_in(db)


async def test_two_relays_of_one_name_do_not_apply_a_delta_twice(source: Source, db: slate.Db) -> None:
    await source.busy(random.Random(4), 1)
    await copy(source, db)
    async with (
        relay_to_database(source.shelf, db, "copy") as first,
        relay_to_database(source.shelf, db, "copy") as second,
    ):
        runs = [asyncio.create_task(made.run()) for made in (first, second)]
        await asyncio.sleep(0.05)
        await source.busy(random.Random(5), 1)
        done, going_on = await asyncio.wait(runs, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(slate.ConflictError, match="another relay keeps b'relay/copy'"):
            await done.pop()
        for run in going_on:
            run.cancel()
    await copy(source, db)
    await source.is_in(db)


async def test_what_comes_next_is_kept_while_no_relay_runs(source: Source, db: slate.Db) -> None:
    """By a critical hold one step behind the database; other readers give all up, and the collection is compacted."""
    await source.busy(random.Random(4), 3)
    await copy(source, db)
    pin = await source.shelf.critical("copy")
    assert pin.since.elements == ((source.time - 1,),)
    assert pin.token == str(source.time)
    await source.busy(random.Random(5), 3)
    await source.compacted()
    assert (await source.shelf.critical("late")).since == pin.since
    await copy(source, db)
    await source.is_in(db)
    assert (await source.shelf.critical("copy")).since.elements == ((source.time - 1,),)


async def test_a_relay_whose_times_were_given_up_says_so(source: Source, db: slate.Db) -> None:
    await source.busy(random.Random(4), 3)
    await copy(source, db)
    await (await source.shelf.critical("copy")).expire()
    await source.busy(random.Random(5), 3)
    await source.compacted()
    with pytest.raises(slate.InvalidError, match=f"cannot go on from 9, because since is {source.time}"):
        await copy(source, db)


async def test_a_collection_that_is_done_ends_the_run(source: Source, db: slate.Db) -> None:
    await source.busy(random.Random(4), 2)
    await copy(source, db)
    async with source.shelf.writer() as writer:
        await writer.append([((b"last", b"1", None), source.time, 1)], upper=DONE)
    async with relay_to_database(source.shelf, db, "copy") as made, asyncio.timeout(20):
        await made.run()
        assert made.upper == DONE
        await made.run()
    assert await db.get(b"last") == b"1"
    assert await db.get(UPPER) == b"orders/1@done"


@pytest.mark.parametrize(
    ("updates", "why"),
    [
        ([((b"k", b"1", None), 0, 2)], "the key b'k'"),
        ([((b"k", b"1", None), 0, -1)], "takes away b'1' from the key b'k', but the database has nothing"),
        ([((b"there", b"1", None), 0, 1)], "adds the key b'there', which the database has already"),
        ([((UPPER, b"1", None), 0, 1)], "the key b'relay/copy', where the relay keeps its upper"),
    ],
)
async def test_contents_that_no_database_has_change_nothing(
    source: Source, db: slate.Db, updates: list[Any], why: str
) -> None:
    await db.put(b"there", b"0")
    await source.raw(*updates)
    with pytest.raises(slate.InvalidError, match=why):
        await copy(source, db)
    assert await contents(db) == {b"there": b"0"}


async def test_the_upper_of_another_collection_is_refused(source: Source, db: slate.Db) -> None:
    await source.busy(random.Random(4), 1)
    await copy(source, db)
    source.shelf.name = "customers"
    with pytest.raises(slate.InvalidError, match=r"b'orders/1@3'.*another collection.*customers/1"):
        await copy(source, db)


async def test_rows_expire_in_the_database_as_they_say(source: Source, db: slate.Db) -> None:
    clock: Any = db._context.runtime.clock
    later, gone = (pa.scalar(clock.wall_ms + ms, pa.timestamp("ms", "UTC")).as_py() for ms in (5000, -5000))
    await source.raw(((b"a", b"1", later), 0, 1), ((b"b", b"1", gone), 0, 1), ((b"c", b"1", None), 0, 1))
    await copy(source, db)
    assert {key: await db.get(key) for key in (b"a", b"b", b"c")} == {b"a": b"1", b"b": None, b"c": b"1"}
    clock.wall_ms += 6000
    assert await db.get(b"a") is None
    await source.raw(((b"a", b"1", later), 1, -1), ((b"b", b"1", gone), 1, -1), ((b"b", b"2", None), 1, 1))
    await copy(source, db)
    assert {key: await db.get(key) for key in (b"a", b"b", b"c")} == {b"a": None, b"b": b"2", b"c": b"1"}


async def test_a_database_is_kept_equal_to_another_one_through_a_collection(town: Town, db: slate.Db) -> None:
    async with town.relay() as first, relay_to_database(town.shelf, db, "copy") as second:
        runs = [asyncio.create_task(made.run()) for made in (first, second)]
        for seed in range(4):
            await town.busy(random.Random(seed), 5)
            await until(lambda: second.upper.elements == ((town.seq + 1,),), "both")
            found = await contents(db)
            del found[UPPER]
            assert found == town.contents == await contents(town.db)
        for run in runs:
            run.cancel()
        await asyncio.wait(runs)


async def test_arguments_are_checked(source: Source, db: slate.Db) -> None:
    for name in ("", "A", "x" * 65):
        with pytest.raises(slate.InvalidError):
            relay_to_database(source.shelf, db, name)
    with pytest.raises(slate.InvalidError, match="writes to a Db, not to a Source"):
        relay_to_database(source.shelf, source, "copy")  # type: ignore[arg-type]
    for options, why in (
        ({"data": relay_schema("log")}, "orders has the columns op"),
        ({"kind": TimeKind.U64X2}, "are u64x2"),
    ):
        shelf = Shelf(**{"data": relay_schema("upsert"), **options})  # type: ignore[arg-type]
        with pytest.raises(slate.InvalidError, match=why):
            async with relay_to_database(shelf, db, "copy"):
                pass
    made = relay_to_database(source.shelf, db, "copy", upper_key=b"elsewhere")
    with pytest.raises(slate.InvalidError, match="within its async with block"):
        await made.run()
    await source.busy(random.Random(4), 1)
    async with made:
        await made.run(until=source.time)
    assert await db.get(b"elsewhere") == b"orders/1@3"
