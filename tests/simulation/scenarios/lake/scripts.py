"""Interleavings of readers, writers and controllers of collections that chance finds too rarely."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

from slate_async.collections import deletion
from slate_async.collections.codec.life import Appends
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.errors import LeaseLostError, UpperMismatchError
from slate_async.collections.reader.critical import open_critical
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.collections.reader.listen import Listener
from slate_async.collections.writer.writer import open_writer
from tests.simulation.checkers import Violation
from tests.simulation.faults import Fault, Rule
from tests.simulation.scenarios.lake.commit_scripts import COMMIT_SCRIPTS
from tests.simulation.scenarios.lake.estate import Row, contents_of
from tests.simulation.scenarios.lake.lost_scripts import LOST_SCRIPTS
from tests.simulation.scenarios.lake.stage import LakeStage, lake_script
from tests.simulation.scenarios.protocol import Scenario
from tests.simulation.store import StoredObject


async def restarted_listener(stage: LakeStage) -> None:
    """A listener is started again where it has given up all before, after that was compacted."""
    keeper, writer = await stage.controller(), await stage.writer("w0")
    node, reader = await stage.reader("listener")
    heard: list[Row] = []

    async def listen(listener: Listener, upper: int) -> None:
        async with listener:
            while listener.upper.less_equal((upper - 1,)):
                delta = await anext(listener)
                heard.extend((row["data"], (row["_time"],), row["_diff"]) for row in delta.updates.to_pylist())
                await reader.downgrade_since(delta.upper)

    await stage.append(writer, 0, 5)
    await node.run(listen(reader.subscribe(0), 5))
    await asyncio.sleep(0.1)
    await stage.rounds(keeper)
    await stage.append(writer, 5, 8)
    await stage.rounds(keeper)
    await asyncio.sleep(0.1)
    await node.run(listen(reader.listen(start=5), 8))
    found, expected = contents_of(heard, (7,)), stage.estate.contents((7,))
    if found != expected:
        raise Violation("listening", f"heard {found}, expected {expected}")


async def lost_while_it_waits(stage: LakeStage) -> None:
    """A reader loses its lease while it waits for a time, and that is compacted when it comes.

    What renews the lease is on its way for all of that, so nobody tells the reader."""
    keeper, writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 8)
    await stage.rounds(keeper, 1)
    slow, fast = await stage.reader("slow"), await stage.reader("fast")
    renewal = stage.hold(slow[0], "put-match", "readers/")
    looking = stage.world.loop.create_task(stage.look(slow, 9))
    await renewal.caught()
    await stage.give_up(fast, 11)
    await stage.outlast(keeper)
    await stage.append(writer, 8, 12)
    await stage.rounds(keeper)
    await asyncio.sleep(0.1)
    renewal.release()
    await looking


async def late_shard(stage: LakeStage) -> None:
    """A shard brings what another one had brought before, and more."""
    keeper = await stage.controller()
    first, other = await stage.writer("w0"), await stage.writer("w1")
    await stage.append(first, 0, 3)
    await stage.rounds(keeper, 1)
    await stage.append(other, 0, 5)
    await stage.look(await stage.reader("reader"), 4)


async def dead_batch(stage: LakeStage) -> None:
    """A batch lands at a name that was collected, and reaches beyond what was merged."""
    keeper = await stage.controller()
    first, zombie = await stage.writer("w0"), await stage.writer("w1")
    put = stage.hold(zombie[0], "put-create", "pending_batches/")
    late = stage.world.loop.create_task(stage.lost_append(zombie, 0, 5))
    await put.caught()
    await stage.append(first, 0, 3)
    await stage.rounds(keeper)
    put.release()
    await late
    await stage.rounds(keeper, 1)
    with contextlib.suppress(UpperMismatchError):  # then the dead batch was taken
        await stage.append(first, 3, 6)
    await stage.look(await stage.reader("reader"), 4)


async def ghost(stage: LakeStage) -> None:
    """A registration lands again after the hold was revoked and removed, and its owner wakes."""
    keeper, writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 8)
    await stage.rounds(keeper, 1)
    stage.world.rule(
        Rule(
            lambda name, operation, key: name == "sleeper" and operation.startswith("put-create"),
            Fault.LATE,
            late_seconds=2.0,
        )
    )
    node, reader = await stage.reader("sleeper")
    snapshot = await node.run(reader.snapshot(3))
    node.freeze()
    fast = await stage.reader("fast")
    await stage.give_up(fast, 9)
    await stage.outlast(keeper)
    await asyncio.sleep(2.0)

    async def read() -> None:
        try:
            await stage.compare(snapshot)
        except LeaseLostError:
            stage.estate.count("lease lost")

    reading = node.spawn(read())
    node.thaw()
    await node.join(reading)


async def late_registration(stage: LakeStage) -> None:
    """What a reader registers at is given up before its hold is there."""
    keeper, writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 8)
    await stage.rounds(keeper, 1)
    fast, node = await stage.reader("fast"), stage.world.node("late")
    put = stage.hold(node, "put-create", "readers/")
    opening = node.spawn(open_reader(stage.estate.stores(node).reading()))
    await put.caught()
    await stage.give_up(fast, 9)
    await stage.rounds(keeper)
    put.release()
    await stage.look(stage.believed(node, await node.join(opening)), 3)


async def late_clone(stage: LakeStage) -> None:
    """The source of a clone is lost before the clone's hold is there."""
    keeper, writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 8)
    await stage.rounds(keeper, 1)
    (node, source), fast = await stage.reader("source"), await stage.reader("fast")
    put = stage.hold(node, "put-create", "readers/")
    cloning = node.spawn(source.clone())
    await put.caught()
    node.freeze()  # a source is renewed else while its clone registers
    await stage.give_up(fast, 9)
    await stage.outlast(keeper)
    put.release()
    node.thaw()
    try:
        clone = await node.join(cloning)
    except LeaseLostError:
        stage.estate.count("lease lost")
        return
    await stage.look((node, clone), 3)


async def reborn_name(stage: LakeStage) -> None:
    """A reader whose lease is over looks up a name that was collected, and where a dead batch has landed since."""
    keeper = await stage.controller()
    first, zombie = await stage.writer("w0"), await stage.writer("w1")
    slow = await stage.reader("slow")
    stage.mute(slow[0])
    slow[0].freeze()
    put = stage.hold(zombie[0], "put-create", "pending_batches/")
    late = stage.world.loop.create_task(stage.lost_append(zombie, 0, 3))
    await put.caught()
    await stage.append(first, 0, 2)
    await stage.outlast(keeper)
    put.release()
    await late
    looking = stage.world.loop.create_task(stage.look(slow, 1))
    await asyncio.sleep(0)
    slow[0].thaw()
    await looking


async def overdue_reader(stage: LakeStage) -> None:
    """A reader whose lease is over reads what was collected."""
    keeper, writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 8)
    await stage.rounds(keeper, 1)
    slow, fast = await stage.reader("slow"), await stage.reader("fast")
    slow[0].freeze()
    await stage.give_up(fast, 9)
    await stage.outlast(keeper)
    looking = stage.world.loop.create_task(stage.look(slow, 3))
    await asyncio.sleep(0)
    slow[0].thaw()
    await looking


async def registered_meanwhile(stage: LakeStage) -> None:
    """A reader registers between the listing of holds and the commit that publishes what they allow."""
    (node, keeper), writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 8)
    await stage.rounds((node, keeper), 1)
    await stage.give_up(await stage.reader("fast"), 9)
    commit = stage.hold(node, "manifest-commit")
    publishing = node.spawn(keeper.round())
    await commit.caught()
    late = await stage.reader("late")
    commit.release()
    await node.join(publishing)
    await node.run(keeper.merge(everything=True))
    await stage.look(late, 3)


async def slow_reader(stage: LakeStage) -> None:
    """A reader stands still for longer than its lease, and controllers go on."""
    keeper, writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 8)
    await stage.rounds(keeper, 1)
    slow, fast = await stage.reader("slow"), await stage.reader("fast")
    slow[0].freeze()
    await stage.give_up(fast, 9)
    await stage.outlast(keeper)


async def unanswered_merge(stage: LakeStage) -> None:
    """The commit of a merge is given up and lands after garbage was collected."""
    (node, keeper), writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 4)
    for _ in range(3):
        await node.run(keeper.round())
    await stage.append(writer, 4, 8)
    for _ in range(3):
        await node.run(keeper.round())
    commit = stage.hold(node, "manifest-commit")
    merging = node.spawn(keeper.merge(everything=True))
    await commit.caught()
    merging.cancel()
    await asyncio.wait([merging])
    await node.run(keeper.round())
    commit.release()
    await asyncio.sleep(0.1)


async def successor_at_work(stage: LakeStage) -> None:
    """A controller that was fenced collects garbage while its successor is about to commit what it has merged."""
    (node, keeper), writer = await stage.controller("first"), await stage.writer("w0")
    for lower in (0, 4):
        await stage.append(writer, lower, lower + 4)
        await node.join(node.spawn(keeper.round()))
    listing = stage.hold(node, "list", "merged_batches/")
    collecting = node.spawn(keeper.round())
    await listing.caught()
    other, successor = await stage.controller("second")
    await other.join(other.spawn(successor.round()))
    commit = stage.hold(other, "manifest-commit")
    merging = other.spawn(successor.merge(everything=True))
    await commit.caught()
    listing.release()
    await asyncio.wait([collecting])
    commit.release()
    await other.join(merging)


async def merged_twice(stage: LakeStage) -> None:
    """One batch is compacted by itself again, under a later since."""
    keeper, writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 4)
    fast = await stage.reader("fast")
    await stage.give_up(fast, 3)
    await stage.rounds(keeper)
    await stage.append(writer, 4, 8)
    await stage.rounds(keeper)
    await stage.give_up(fast, 9)
    await stage.rounds(keeper)
    await stage.append(writer, 8, 12)
    await asyncio.sleep(0.1)
    await stage.look(fast, 10)
    await stage.look(await stage.reader("another"), 10)


async def unread(stage: LakeStage) -> None:
    """Nobody holds a collection that is written to."""
    keeper, writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 8)
    await stage.rounds(keeper)
    await stage.look(await stage.reader("reader"), 3)


async def clones_in_a_row(stage: LakeStage) -> None:
    """Twice a clone is made between the listing of holds and the reading of its source's, which then moves on."""
    (node, keeper), writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 8)
    await stage.rounds((node, keeper), 1)
    source = await stage.reader("source")
    for _ in range(2):
        reading = stage.hold(node, "get", f"readers/{source[1]._hold.handle.reader}/")
        looking = node.spawn(keeper.round())
        await reading.caught()
        clone = stage.believed(source[0], await source[0].run(source[1].clone()))
        await stage.give_up(source, 9)
        reading.release()
        await node.join(looking)
        source = clone
    await node.run(keeper.merge(everything=True))
    await stage.look(source, 3)


async def walk_overtaken(stage: LakeStage) -> None:
    """A batch is absorbed and collected while a writer walks to the end of the chain."""
    keeper, first = await stage.controller(), await stage.writer("w0")
    node = stage.world.node("w1")
    looking = stage.hold(node, "get", "pending_batches/")
    opening = node.spawn(open_writer(stage.estate.writing(node, "w1"), Appends.COMPARE))
    await stage.append(first, 0, 3)
    await looking.caught()
    await stage.rounds(keeper)
    looking.release()
    upper = (await node.join(opening)).upper
    if upper.less_equal((2,)):
        raise Violation("behind", f"a writer is told that the chain ends at {upper}, and it goes on to 3")


async def deleted_under_a_reader(stage: LakeStage) -> None:
    """A batch lands at a name that a deletion has removed, before it has removed all."""
    first, zombie = await stage.writer("w0"), await stage.writer("w1")
    slow, node = await stage.reader("slow"), stage.world.node("deleter")
    put = stage.hold(zombie[0], "put-create", "pending_batches/")
    late = zombie[0].spawn(stage.lost_append(zombie, 0, 3))
    await put.caught()
    await stage.append(first, 0, 2)
    slow[0].freeze()
    stores = stage.estate.stores(node)
    await node.run(stores.versions.commits.commit(Tombstone(node.runtime.ids.token())))
    removal = stage.hold(node, "delete", "readers/")
    deleting = node.spawn(deletion.remove_dead(stores))
    await asyncio.sleep(0.1)
    put.release()
    looking = stage.world.loop.create_task(stage.look(slow, 1))
    await asyncio.sleep(0)
    slow[0].thaw()
    await asyncio.wait([looking])
    removal.release()
    await asyncio.wait([deleting, late])
    looking.result()


async def damaged_holds(stage: LakeStage) -> None:
    """The bytes of two holds are damaged, and restored from a backup after all others have given up what these keep."""
    keeper, writer = await stage.controller(), await stage.writer("w0")
    await stage.append(writer, 0, 8)
    await stage.rounds(keeper, 1)
    slow, owner = stage.world.node("slow"), stage.world.node("owner")
    reader = await slow.run(open_reader(stage.estate.stores(slow).reading()))
    pin = await owner.run(open_critical(stage.estate.stores(owner).reading(), "billing"))
    slow.freeze()
    objects = stage.world.cloud.store.objects
    backup = {key: found for key, found in objects.items() if key.endswith("/hold")}
    for key, found in backup.items():
        objects[key] = StoredObject(replace(found.info, etag=f"damaged {found.info.etag}"), found.data[:-1] + b"?")
    await stage.give_up(await stage.reader("fast"), 9)
    await stage.append(writer, 8, 10)
    await stage.rounds(keeper, 6)
    objects.update(backup)
    slow.thaw()
    for node, handle in ((slow, reader), (owner, await owner.run(pin.reader()))):
        await node.run(_read(stage, handle, 7))


async def _read(stage: LakeStage, reader: ReadHandle, as_of: int) -> None:
    """It must be the truth."""
    async with await reader.snapshot(as_of) as snapshot:
        await stage.compare(snapshot)


LAKE_SCRIPTS: Sequence[Scenario] = (
    lake_script("restarted-listener", Appends.DEFINITE, restarted_listener),
    lake_script("lost-while-it-waits", Appends.DEFINITE, lost_while_it_waits),
    lake_script("late-shard", Appends.DEFINITE, late_shard),
    lake_script("dead-batch", Appends.COMPARE, dead_batch),
    lake_script("ghost", Appends.DEFINITE, ghost),
    lake_script("late-registration", Appends.DEFINITE, late_registration),
    lake_script("late-clone", Appends.DEFINITE, late_clone),
    lake_script("reborn-name", Appends.COMPARE, reborn_name),
    lake_script("overdue-reader", Appends.DEFINITE, overdue_reader),
    lake_script("registered-meanwhile", Appends.DEFINITE, registered_meanwhile),
    lake_script("slow-reader", Appends.DEFINITE, slow_reader),
    lake_script("unanswered-merge", Appends.DEFINITE, unanswered_merge),
    lake_script("successor-at-work", Appends.DEFINITE, successor_at_work),
    lake_script("merged-twice", Appends.DEFINITE, merged_twice),
    lake_script("unread", Appends.DEFINITE, unread),
    lake_script("clones-in-a-row", Appends.DEFINITE, clones_in_a_row),
    lake_script("walk-overtaken", Appends.COMPARE, walk_overtaken),
    lake_script("deleted-under-a-reader", Appends.COMPARE, deleted_under_a_reader),
    lake_script("damaged-holds", Appends.DEFINITE, damaged_holds),
    *COMMIT_SCRIPTS,
    *LOST_SCRIPTS,
)
