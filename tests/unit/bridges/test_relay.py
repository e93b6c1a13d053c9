"""`Relay`: what goes into the collection, where a run begins, and what is refused."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.bridges import contents_hold
from slate_async.bridges import relay as relaying
from slate_async.bridges.envelopes import relay_schema
from slate_async.bridges.relay import relay
from slate_async.collections.codec.life import Appends
from slate_async.collections.core.frontier import DONE
from slate_async.collections.core.times import TimeKind
from slate_async.collections.writer.writer import Writer
from tests.engine import START_MS, abandon, memory_store, open_db, open_reader, until
from tests.support.feeds import taken
from tests.unit.bridges.conftest import Town
from tests.unit.bridges.shelf import Shelf


def changes(town: Town, **options: Any) -> Shelf:
    """A collection for every change of ``town``."""
    town.shelf = Shelf(relay_schema("log"), **options)
    return town.shelf


async def test_a_log_has_every_put_and_delete_with_its_expiry(town: Town) -> None:
    shelf = changes(town)
    await town.write((b"a", b"1"), (b"a", b"2"), (b"b", None))
    await town.db.put(b"c", b"3", ttl=60)
    town.happened(b"c", b"3")
    await town.caught_up(envelope="log")
    assert await shelf.upper() == 5
    now, expiry = (pa.scalar(START_MS + more, pa.timestamp("ms", "UTC")).as_py() for more in (0, 60_000))
    rows = [
        ("put", b"a", b"1", now, None),
        ("put", b"a", b"2", now, None),
        ("delete", b"b", None, now, None),
        ("put", b"c", b"3", now, expiry),
    ]
    for seq in range(5):
        assert await shelf.at(seq) == dict.fromkeys(rows[:seq], 1)


async def test_upserts_are_what_the_database_had_at_each_number(town: Town) -> None:
    await town.write((b"a", b"1"), (b"b", b"2"))
    await town.write((b"a", b"3"), (b"a", b"4"), (b"c", b""), (b"b", None), (b"b", None))
    await town.write((b"c", None), (b"c", b"5"), (b"c", b"5"))
    await town.caught_up()
    await town.is_right()


async def test_rows_that_expire_stay_and_say_so(town: Town) -> None:
    await town.db.put(b"a", b"1", ttl=60)
    town.happened(b"a", b"1")
    await town.write((b"b", b"2"), (b"a", b"3"))
    await town.caught_up()
    await town.is_right()
    expiry = pa.scalar(START_MS + 60_000, pa.timestamp("ms", "UTC")).as_py()
    assert await town.shelf.at(2) == {(b"a", b"1", expiry): 1, (b"b", b"2", None): 1}


@pytest.mark.parametrize("envelope", ["log", "upsert"])
async def test_a_run_goes_on_where_the_collection_ends(town: Town, envelope: Any) -> None:
    town.shelf = Shelf(relay_schema(envelope))
    rng = random.Random(3)
    for _ in range(4):
        await town.busy(rng, 6)
        await town.caught_up(envelope=envelope)
    if envelope == "upsert":
        await town.is_right()
    else:
        assert sum((await town.shelf.at(town.seq)).values()) == town.seq


async def test_what_was_written_while_it_runs_comes_until_it_is_cancelled(town: Town) -> None:
    async with town.relay() as made:
        run = asyncio.create_task(made.run())
        for _ in range(3):
            await town.busy(random.Random(4), 3)
            await until(lambda: made.upper.elements == ((town.seq + 1,),), "the relay")
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        metrics = made.metrics()
        assert (metrics["relay.upper"], metrics["relay.rows"]) == (town.seq + 1, town.seq)
        assert metrics["relay.appends"] >= 3
        assert metrics["relay.updates"] >= metrics["relay.rows"] / 2
        assert metrics["relay.state_bytes"] == 0, "nothing is kept between runs"
    await town.is_right()


async def test_a_crash_after_the_append_before_the_acknowledgement_repeats_nothing(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.busy(random.Random(5), 9)

    async def crash(self: slate.ChangeFeed, seq: int, *, now: bool = False) -> None:
        raise OSError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(slate.ChangeFeed, "acknowledge", crash)
        with pytest.raises(OSError, match="crash"):
            await town.caught_up()
    assert await town.shelf.upper() == town.seq + 1
    async with town.db.changes(subscription="relay-a") as feed:
        assert feed.acknowledged == 0
    await town.busy(random.Random(6), 9)
    await town.caught_up()
    await town.is_right()
    async with town.db.changes(subscription="relay-a") as feed:
        assert feed.acknowledged == town.seq


async def test_a_crash_before_the_append_loses_nothing(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    await town.busy(random.Random(5), 9)
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append", lambda *_, **__: asyncio.sleep(0, 1 / 0))
        with pytest.raises(ZeroDivisionError):
            await town.caught_up()
    assert await town.shelf.upper() == 0
    await town.caught_up()
    await town.is_right()


async def test_a_subscription_ahead_of_the_collection_is_refused_by_both_names(town: Town) -> None:
    await town.busy(random.Random(5), 3)
    await town.caught_up()
    behind = town.seq
    await town.busy(random.Random(5), 3)
    async with town.db.changes(subscription="relay-a") as feed:
        await taken(feed, town.seq - behind)
        await feed.acknowledge(town.seq, now=True)
    with pytest.raises(slate.InvalidError, match=rf"orders ends at {behind + 1},.*'relay-a'.* {town.seq}:"):
        await town.caught_up()
    town.shelf = Shelf(relay_schema("upsert"))
    with pytest.raises(slate.InvalidError, match=rf"orders ends at 0,.*'relay-a'.* {town.seq}:"):
        await town.caught_up()


async def test_a_collection_ahead_of_the_database_is_refused(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "LAG_S", 0.1)
    async with town.shelf.writer() as writer:
        await writer.append([], upper=100)
    with pytest.raises(slate.InvalidError, match=r"orders ends at 100,.*99 is not durable yet"):
        async with town.relay() as made:
            await made.run()


async def test_a_writer_that_learns_late_what_is_durable_is_waited_for(town: Town) -> None:
    """A relay beside a reader has brought it already."""
    await town.write((b"a", b"1"))
    await town.caught_up()
    async with town.shelf.writer() as writer:
        await writer.append([((b"b", b"2", None), 2, 1)], upper=3)
    async with town.relay() as made, asyncio.timeout(10):
        run = asyncio.create_task(made.run(until=4))
        await asyncio.sleep(0.1)
        assert not run.done()
        await town.write((b"b", b"2"), (b"b", b"3"))
        await run
    await town.is_right()


async def test_a_relay_beside_a_writer_that_was_fenced_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "LAG_S", 0.1)
    store, shelf = memory_store(), Shelf(relay_schema("upsert"))
    zombie = await open_db(store)
    await zombie.put(b"a", b"1")
    async with open_db(store) as db:
        await db.put(b"a", b"2")
        async with relay(db, "relay-a", shelf, envelope="upsert") as made:
            await made.run(until=3)
        async with relay(zombie, "relay-b", shelf, envelope="upsert") as made:
            with pytest.raises(slate.FencedError):
                await made.run()
    await abandon(zombie)


async def test_a_relay_beside_a_reader_goes_on_when_another_writer_takes_over() -> None:
    store, shelf = memory_store(), Shelf(relay_schema("upsert"))
    killed = await open_db(store)
    town = Town(killed, shelf)
    await town.busy(random.Random(1), 4)
    async with open_reader(store, manifest_poll_interval_ms=5) as reader, asyncio.timeout(20):
        async with relay(reader, "relay-a", shelf, envelope="upsert") as made:
            run = asyncio.create_task(made.run())
            await until(lambda: made.upper.elements == ((town.seq + 1,),), "the relay")
            await abandon(killed)
            async with open_db(store) as town.db:
                town.seq = town.db.status().last_seq
                await town.busy(random.Random(2), 4)
                await until(lambda: made.upper.elements == ((town.seq + 1,),), "the relay")
                assert not run.done()
    assert await shelf.values(town.seq) == town.contents


async def test_a_subscription_that_was_deleted_is_made_again_while_the_changes_are_kept(town: Town) -> None:
    await town.busy(random.Random(5), 3)
    await town.caught_up()
    await town.lose_subscriptions()
    await town.busy(random.Random(6), 3)
    await town.db.compact(full=True)
    await town.caught_up()
    await town.is_right()


async def test_a_subscription_that_was_deleted_when_changes_are_gone_is_an_error(forgetful: Town) -> None:
    town = forgetful
    await town.busy(random.Random(5), 3)
    await town.caught_up()
    end = town.seq + 1
    await town.lose_subscriptions()
    await town.busy(random.Random(6), 3)
    await town.db.compact(full=True)
    with pytest.raises(slate.NotFoundError, match=rf"orders ends at {end},.*'relay-a'.*kept from sequence number"):
        await town.caught_up()


async def test_a_relay_whose_subscription_is_taken_over_fails(town: Town) -> None:
    await town.write((b"a", b"1"))
    async with town.relay() as first, town.relay() as second:
        runs = [asyncio.create_task(first.run()), asyncio.create_task(asyncio.sleep(0))]
        await until(lambda: first.upper.elements == ((2,),), "the first")
        runs[1] = asyncio.create_task(second.run())
        await until(lambda: second.metrics()["relay.runs"] == 1 and second.upper.elements == ((2,),), "the second")
        await asyncio.sleep(0.05)
        await town.write((b"a", b"2"))
        async with asyncio.timeout(10):
            with pytest.raises(slate.NotFoundError, match=r"subscription 'relay-a'.*no longer exists"):
                await runs[0]
        await until(lambda: second.upper.elements == ((3,),), "the second")
        runs[1].cancel()
    await town.is_right()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"data": relay_schema("log")}, r"orders has the columns op string, .*relay_schema"),
        ({"appends": Appends.DEFINITE}, "appends are compare.*of orders are definite"),
        ({"kind": TimeKind.U64X2}, "u64, those of orders are u64x2"),
    ],
)
async def test_a_collection_that_does_not_fit_is_refused(town: Town, options: dict[str, Any], why: str) -> None:
    town.shelf = Shelf(**{"data": relay_schema("upsert"), **options})
    with pytest.raises(slate.InvalidError, match=why):
        async with town.relay():
            pass


async def test_arguments_are_checked(town: Town) -> None:
    with pytest.raises(slate.InvalidError, match="envelope is 'log' or 'upsert', not 'x'"):
        relay(town.db, "relay-a", town.shelf, envelope="x")  # type: ignore[arg-type]
    for wrong in (0, True, 1.5):
        with pytest.raises(slate.InvalidError, match="state_bytes is a positive number of bytes"):
            relay(town.db, "relay-a", town.shelf, state_bytes=wrong)  # type: ignore[arg-type]


async def test_runs_are_within_the_block_and_one_at_a_time(town: Town) -> None:
    made = town.relay()
    with pytest.raises(slate.InvalidError, match="within its async with block"):
        await made.run()
    async with made:
        run = asyncio.create_task(made.run())
        await asyncio.sleep(0.01)
        with pytest.raises(slate.InvalidError, match="runs already"):
            await made.run()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_the_hold_of_the_relays_follows_the_collection(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents_hold, "DOWNGRADE_S", 0.0)
    await town.busy(random.Random(1), 4)
    async with town.relay() as made, town.relay("relay-b") as rival:
        runs = [asyncio.create_task(each.run()) for each in (made, rival)]
        for seed in range(3):
            await town.busy(random.Random(seed), 4)
            await until(lambda: made.upper == rival.upper and made.upper.elements == ((town.seq + 1,),), "both")
            pin = await town.shelf.critical(contents_hold.HOLD)
            async with asyncio.timeout(10):
                while pin.since.elements != ((town.seq,),):
                    await asyncio.sleep(0.01)
                    await pin.refresh()
        assert not any(run.done() for run in runs), "one that comes second leaves the hold to the other"


async def test_a_hold_of_the_relays_is_moved_now_and_then_and_at_the_end(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents_hold, "DOWNGRADE_S", 3_600.0)
    async with town.relay() as made:
        run = asyncio.create_task(made.run(until=6))
        for seq in range(2, 6):
            await town.write((b"a", b"%d" % seq))
            await until(lambda seq=seq: run.done() or made.upper.elements == ((seq,),), "the relay")  # type: ignore[misc]
        await asyncio.sleep(0.05)
        pin = await town.shelf.critical(contents_hold.HOLD)
        assert (pin.since.elements, pin.token) == (((1,),), "2")
        await town.write((b"a", None))
        await run
    await pin.refresh()
    assert (pin.since.elements, pin.token) == (((5,),), "6")


async def test_a_hold_that_is_given_up_ends_the_run_and_the_next_one_takes_it_again(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents_hold, "DOWNGRADE_S", 0.0)
    await town.write((b"a", b"1"))
    async with town.relay() as made:
        run = asyncio.create_task(made.run())
        await until(lambda: made.upper.elements == ((2,),), "the relay")
        await (await town.shelf.critical(contents_hold.HOLD)).expire()
        await town.write((b"a", b"2"))
        with pytest.raises(slate.LeaseLostError, match="upsert-relay was given up"):
            await asyncio.wait_for(run, 10)
    await town.caught_up()
    await town.is_right()


async def test_a_log_has_no_hold(town: Town) -> None:
    shelf = changes(town)
    await town.write((b"a", b"1"))
    await town.caught_up(envelope="log")
    assert not [key async for key in shelf.store.list("") if contents_hold.HOLD in key.key]


async def test_contents_beyond_state_bytes_are_an_error(town: Town) -> None:
    await town.write((b"a", b"1"), (b"b", b"2"))
    async with town.relay(state_bytes=300) as made:
        with pytest.raises(slate.InvalidError, match="state_bytes=300"):
            await made.run()
    await town.caught_up()
    async with town.relay(state_bytes=300) as made:
        with pytest.raises(slate.InvalidError, match="state_bytes=300"):
            await made.run()


async def test_a_collection_that_is_done_ends_the_run(town: Town) -> None:
    await town.write((b"a", b"1"))
    async with town.shelf.writer() as writer:
        await writer.append([], upper=DONE)
    with pytest.raises(slate.ClosedError, match="orders is closed"):
        await town.caught_up()


async def test_what_something_else_wrote_is_refused(town: Town) -> None:
    await town.write((b"a", b"1"))
    async with town.shelf.writer() as writer:
        await writer.append([((b"a", b"1", None), 0, 2)], upper=1)
    with pytest.raises(slate.InvalidError, match="orders holds a row of the key b'a' 2 times"):
        await town.caught_up()


async def test_a_relay_of_some_keys_ends_where_the_feed_does(town: Town) -> None:
    """Two collections of one database, the times of which say the same."""
    await town.busy(random.Random(7), 20)
    both = {"low": Shelf(relay_schema("upsert")), "high": Shelf(relay_schema("upsert"))}
    spans: dict[str, dict[str, bytes]] = {"low": {"end": b"c"}, "high": {"start": b"c", "end": b"d"}}
    for name, shelf in both.items():
        async with relay(town.db, name, shelf, envelope="upsert", **spans[name]) as made:
            await made.run(until=town.seq + 1)
        assert await shelf.upper() == town.seq + 1
    for seq in range(1, town.seq + 1):
        expected = town.history[seq]
        assert await both["low"].values(seq) == {key: value for key, value in expected.items() if key < b"c"}
        assert await both["high"].values(seq) == {key: value for key, value in expected.items() if key == b"c"}
