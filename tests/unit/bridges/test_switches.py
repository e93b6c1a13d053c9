"""What goes wrong without each rule of the relays: every history here ends well with it, and badly without."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.bridges.relay import Relay
from slate_async.bridges.relay_run import RelayRun
from slate_async.bridges.to_database import DatabaseRelay, relay_to_database
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.writer.writer import Writer
from tests.engine import contents, memory_store, open_db, until
from tests.unit.bridges.conftest import Town

Patch = pytest.MonkeyPatch
on_and_off = pytest.mark.parametrize("rule", [True, False], ids=["on", "off"])


async def ends(rule: bool, history: Callable[[], Awaitable[None]], *errors: type[BaseException]) -> None:
    """``history`` ends well iff the rule is on."""
    if rule:
        await history()
        return
    with pytest.raises(errors):
        await history()


@on_and_off
async def test_rows_that_others_appended_are_a_part_of_the_contents(town: Town, rule: bool, monkeypatch: Patch) -> None:
    append = RelayRun._append

    async def without(self: RelayRun, rows: pa.RecordBatch, end: int) -> None:
        if not Frontier(((end,),)) <= self._progress.upper:
            await append(self, rows, end)

    if not rule:
        monkeypatch.setattr(RelayRun, "_append", without)

    async def history() -> None:
        """The standby reads two batches, the second of which it appends; the first relay has appended both and more."""
        await town.write((b"a", b"0"))
        async with town.relay("relay-a") as first, town.relay("relay-b") as standby:
            run = asyncio.create_task(standby.run())
            await until(lambda: standby.upper.elements == ((2,),), "the standby")
            writers = Writer.append

            async def late(self: Writer, *args: Any, **options: Any) -> None:
                if asyncio.current_task() is run:
                    await overtaken.wait()
                await writers(self, *args, **options)

            overtaken = asyncio.Event()
            with monkeypatch.context() as patch:
                patch.setattr(Writer, "append", late)
                await town.write((b"a", b"1"))
                await asyncio.sleep(0.02)  # the standby waits with this one, and has read nothing else
                await town.write((b"b", b"2"))
                await first.run(until=town.seq + 1)
                overtaken.set()
                await until(lambda: standby.upper.elements == ((town.seq + 1,),), "the standby")
                await asyncio.sleep(0.05)  # it reads on, by itself
            await town.write((b"b", b"3"))
            await until(lambda: standby.upper.elements == ((town.seq + 1,),), "the standby")
            run.cancel()
            await asyncio.wait([run])
        await town.is_right()

    await ends(rule, history, AssertionError)


@on_and_off
async def test_contents_are_held_for_the_next_run(town: Town, rule: bool, monkeypatch: Patch) -> None:
    async def without(self: Relay) -> None:
        """No hold."""

    if not rule:
        monkeypatch.setattr(Relay, "_contents_hold", without)

    async def history() -> None:
        """A reader gives up times beyond the upper, while no relay runs; the next relay reads the contents."""
        await town.write((b"a", b"1"), (b"b", b"2"))
        await town.caught_up()
        await town.shelf.compacted(town.seq + 3)
        await town.write((b"a", None), (b"b", b"3"))
        await town.caught_up("relay-b")
        await town.shelf.compacted(town.seq + 3)
        assert (await town.shelf.critical("late")).since.elements == ((town.seq,),), "since follows the relays"
        await town.is_right(town.seq)

    await ends(rule, history, slate.SinceError)


@on_and_off
async def test_a_snapshot_is_one_append(forgetful: Town, rule: bool, monkeypatch: Patch) -> None:
    town = forgetful
    if not rule:
        monkeypatch.setattr(slate.ChangeFeed, "snapshot_seq", 0)

    async def history() -> None:
        """A relay dies in the middle of its snapshot; what is left of that is no state of the database."""
        await town.write((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"a", b"4"))
        await town.db.compact(full=True)
        await town.caught_up()
        await town.write((b"c", None))
        await town.caught_up()
        assert await town.shelf.values(3) in ({}, town.history[3])
        await town.is_right(4)

    await ends(rule, history, AssertionError)


@on_and_off
async def test_changes_are_acknowledged_after_their_append(town: Town, rule: bool, monkeypatch: Patch) -> None:
    append = RelayRun._append

    async def without(self: RelayRun, rows: pa.RecordBatch, end: int) -> None:
        await self._feed.acknowledge(end - 1, now=True)
        await append(self, rows, end)

    if not rule:
        monkeypatch.setattr(RelayRun, "_append", without)

    async def crash(*_: Any, **__: Any) -> None:
        raise OSError("crash")

    async def history() -> None:
        await town.write((b"a", b"1"))
        with monkeypatch.context() as patch:
            patch.setattr(Writer, "append", crash)
            with pytest.raises(OSError, match="crash"):
                await town.caught_up()
        await town.caught_up()
        await town.is_right()

    await ends(rule, history, slate.InvalidError)


@on_and_off
async def test_a_databases_upper_is_in_the_batch_of_its_delta(town: Town, rule: bool, monkeypatch: Patch) -> None:
    apply = DatabaseRelay._apply

    async def without(self: DatabaseRelay, delta: Any, stored: Any) -> None:
        """The rows first, the upper then; the process dies between."""
        with monkeypatch.context() as patch:
            patch.setattr(self, "_upper_key", b"elsewhere")
            await apply(self, delta, stored)
        await asyncio.sleep(3600)

    await town.busy(random.Random(3), 5)
    await town.write((b"a", b"1"))
    await town.caught_up()

    async def history() -> None:
        async with open_db(memory_store()) as db, relay_to_database(town.shelf, db, "copy") as made:
            if not rule:
                monkeypatch.setattr(DatabaseRelay, "_apply", without)
            run = asyncio.create_task(made.run())
            await until(lambda: made.metrics()["database_relay.deltas"] > 0, "the first delta")
            run.cancel()
            await asyncio.wait([run])
            monkeypatch.setattr(DatabaseRelay, "_apply", apply)
            async with asyncio.timeout(10):
                await made.run(until=town.seq + 1)
            found = await contents(db)
            del found[b"relay/copy"]
            assert found == town.contents

    await ends(rule, history, AssertionError, slate.InvalidError)
