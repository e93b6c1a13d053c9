"""`slate_async.collections.overview.look`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slate_async.collections.codec.description import Description
from slate_async.collections.codec.hold import encode_hold
from slate_async.collections.codec.life import Appends
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.holding import Hold
from slate_async.collections.core.names import MergedName, PendingName, hold_name
from slate_async.collections.overview.look import look
from slate_async.collections.overview.views import GarbageView, HoldView, Overview
from slate_async.errors import CorruptionError
from tests.support.collection_bytes import BYTES, frontier, put_batch
from tests.unit.collections.used import TOKEN, UsedLake, flipped


async def seen(lake: UsedLake, appends: Appends = Appends.DEFINITE) -> Overview:
    return await look(lake.reading(appends), 3)


async def test_an_empty_collection(lake: UsedLake) -> None:
    found = await seen(lake)
    assert (found.name, found.life, found.version, found.epoch) == ("orders", 3, 0, 0)
    assert (found.upper, found.reach) == ("0", "0")
    assert (found.layers, found.shards, found.holds, found.retained) == ((), (), (), 0)
    assert found.garbage == GarbageView(known=True)


async def test_layers_and_frontiers_are_those_of_the_head(lake: UsedLake) -> None:
    await lake.filled()
    head = await lake.head()
    found = await seen(lake)
    assert (found.version, found.epoch, found.upper, found.since) == (head.version, 1, "30", str(head.since))
    assert (found.floor, found.bound, found.deleted) == (head.floor, str(head.bound), False)
    assert [layer.rows for layer in found.layers] == [batch.rows for batch in head.batches]
    assert [(layer.lower, layer.upper) for layer in found.layers] == [("0", "20"), ("20", "30")]
    sizes = {info.key: info.size async for info in lake.store.list("merged_batches/")}
    assert [layer.nbytes for layer in found.layers] == [sizes[name] for name in head.names()]
    assert (found.rows, found.nbytes) == (head.rows, sum(sizes[name] for name in head.names()))
    assert found.retained == head.version - head.floor


async def test_shards_say_how_far_each_writer_comes(lake: UsedLake) -> None:
    await lake.filled()
    name = PendingName("c", frontier(50), frontier(60))
    await put_batch(lake.pending(), name, Description(frontier(50), frontier(60), TOKEN, "c", 0, 0), BYTES.empty())
    found = await seen(lake)
    assert found.reach == "40"
    assert [(shard.writer, shard.batches, shard.reach, shard.ahead) for shard in found.shards] == [
        ("a", 2, "40", 0),
        ("c", 1, "30", 1),
    ]
    assert all(shard.nbytes > 0 for shard in found.shards)


async def test_a_chain_is_one_shard(lake: UsedLake) -> None:
    await lake.compared()
    found = await seen(lake, Appends.COMPARE)
    assert (found.upper, found.reach, found.appends) == ("15", "25", "compare")
    assert [(shard.writer, shard.batches, shard.reach) for shard in found.shards] == [("main", 2, "25")]


async def test_holds_say_who_keeps_what(lake: UsedLake) -> None:
    await lake.filled()
    head = await lake.head()
    old = Hold(head.version, frontier(25), 60_000, TOKEN, note="view")
    await lake.store.put(hold_name("late"), encode_hold(old))
    await lake.store.put(hold_name("billing"), encode_hold(Hold(None, frontier(0), None, TOKEN)))
    await lake.store.put(hold_name("gone"), encode_hold(replace(old, version=1, revoked=True)))
    found = {hold.reader: hold for hold in (await seen(lake)).holds}
    first = found["r" * 32]
    assert (first.holds_since, first.holds_floor, first.version) == (True, True, head.floor)
    assert (found["billing"].holds_since, found["billing"].holds_floor) == (True, False)
    assert (found["gone"].revoked, found["gone"].holds_since, found["gone"].holds_floor) == (True, False, False)
    late = found["late"]
    idle = late.idle_ms
    assert late == HoldView("late", "view", head.version, "25", 60_000, idle, False, False, False)


async def test_garbage_is_counted_as_a_controller_judges_it(lake: UsedLake) -> None:
    controller = await lake.filled()
    assert (await seen(lake)).garbage == GarbageView(known=True)
    for epoch in (0, controller.epoch):
        await lake.store.put(str(MergedName(frontier(0), frontier(30), epoch, TOKEN)), b"x" * 9)
    await lake.store.put(str(PendingName("z", frontier(0), frontier(5))), b"x" * 5)
    await lake.store.put("notes.txt", b"mine")
    found = (await seen(lake)).garbage
    assert found == GarbageView(known=True, merged=1, pending=1, nbytes=14, flying=1, versions=0, foreign=1)


async def test_a_missing_version_leaves_garbage_unknown(lake: UsedLake) -> None:
    await lake.filled()
    versions = await lake.keys("merged_areas/v0")
    await lake.store.delete([versions[-2]])
    assert (await seen(lake)).garbage.known is False


async def test_a_deleted_collection_is_shown(lake: UsedLake) -> None:
    await lake.filled()
    versions = lake.versions()
    await versions.load()
    await versions.commits.commit(Tombstone(TOKEN))
    found = await seen(lake)
    assert (found.deleted, found.upper, found.layers) == (True, "done", ())
    assert found.garbage.merged > 0


async def test_a_damaged_head_is_an_error(lake: UsedLake) -> None:
    await lake.filled()
    await lake.change((await lake.keys("merged_areas/v0"))[-1], flipped(40))
    with pytest.raises(CorruptionError):
        await seen(lake)
