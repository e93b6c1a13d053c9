"""A checkpoint shows the rows of its time, for ever, whatever the writers after it do to log and manifest."""

from __future__ import annotations

from dataclasses import replace

import pytest

import slate_async as slate
from slate_async.engine.checkpoint.load import load_checkpoint
from slate_async.errors import CorruptionError, InvalidError
from slate_async.objectstore.memory import MemoryStore
from slate_async.storage.log.register import decode
from slate_async.storage.manifest.edits.checkpoints import DeleteCheckpoints
from slate_async.storage.manifest.state import Checkpoint
from tests.engine import KINDS, Kind, abandon, memory_store, on, open_db, runtime
from tests.support.checkpoints import checkpoint_on_path, manifest_of, register_of, rows_of

pytestmark = pytest.mark.parametrize("kind", KINDS, ids=str)


async def write_rows(store: MemoryStore, kind: Kind, first: int, count: int = 10) -> None:
    """By a writer that crashes afterwards."""
    db = await open_db(store, kind)
    for number in range(first, first + count):
        await db.put(b"%04d" % number, b"%d" % first)
    await abandon(db)


async def log_of(store: MemoryStore) -> list[str]:
    return [info.key async for info in store.list("log/")]


async def test_later_writes_and_take_overs_do_not_show(kind: Kind) -> None:
    store = memory_store()
    await write_rows(store, kind, 0)
    checkpoint = await checkpoint_on_path(store)
    before = await rows_of(store, checkpoint)
    assert before == {b"%04d" % number: b"0" for number in range(10)}
    for first in (5, 20, 30):
        await write_rows(store, kind, first)
        assert await rows_of(store, checkpoint) == before
    async with open_db(store, kind) as db:
        await db.flush(l0=True)
        await db.delete(b"0001")
    assert await rows_of(store, checkpoint) == before


async def test_epochs_that_the_register_forgot_are_still_found(kind: Kind) -> None:
    """Compaction takes the log, takeovers close epochs and drop those at or below its start, a collector comes: the
    checkpoint names its own epochs."""
    store = memory_store()
    await write_rows(store, kind, 0)
    await write_rows(store, kind, 10)
    checkpoint = await checkpoint_on_path(store)
    before = await rows_of(store, checkpoint)
    assert len(before) == 20
    for first in (20, 30):
        await write_rows(store, kind, first)
        async with open_db(store, kind) as db:
            await db.compact(full=True)
    now = slate.Settings(gc_min_age_ms=0, version_keep_ms=0, gc_clock_skew_ms=0)
    async with on(runtime()).open_gc(store, name="memory://test", periodic=False, settings=now) as collector:
        reports = [await collector.collect() for _ in range(3)]
    assert sum(len(report.objects) for report in reports) > 0
    async with manifest_of(store) as driver:
        assert driver.head is not None
        assert checkpoint.log_end is not None
        assert driver.head.log_start > checkpoint.log_end
        register = register_of(store, driver.head)
        if register is not None:
            cell = await register.read()
            assert cell is not None
            remembered = [epoch for epoch, _ in decode(cell.value).owners]
            assert not {epoch for epoch, _ in checkpoint.log_ranges} & {*remembered}
    assert await rows_of(store, checkpoint) == before


async def test_an_empty_database_has_an_empty_checkpoint(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind):
        pass
    assert await rows_of(store, await checkpoint_on_path(store)) == {}


async def test_objects_past_its_end_are_not_even_asked_for(kind: Kind) -> None:
    store = memory_store()
    await write_rows(store, kind, 0)
    checkpoint = await checkpoint_on_path(store)
    before = await rows_of(store, checkpoint)
    inside = await log_of(store)
    await write_rows(store, kind, 50)
    await store.delete([key for key in await log_of(store) if key not in inside])
    assert await rows_of(store, checkpoint) == before


async def test_a_missing_object_is_corruption_while_the_checkpoint_lives_and_its_end_afterwards(kind: Kind) -> None:
    store = memory_store()
    await write_rows(store, kind, 0)
    checkpoint = await checkpoint_on_path(store)
    await store.delete([(await log_of(store))[-1]])
    with pytest.raises(CorruptionError, match=str(checkpoint.id)):
        await rows_of(store, checkpoint)
    async with manifest_of(store) as driver:
        await driver.commit(DeleteCheckpoints(frozenset((checkpoint.id,))))
    with pytest.raises(InvalidError, match="was deleted"):
        await rows_of(store, checkpoint)


async def test_one_without_an_end_of_the_log_is_refused(kind: Kind) -> None:
    store = memory_store()
    await write_rows(store, kind, 0)
    checkpoint: Checkpoint = replace(await checkpoint_on_path(store), log_end=None, owner="reader")
    async with manifest_of(store) as driver:
        with pytest.raises(InvalidError, match="reader's own"):
            await load_checkpoint(store, driver, checkpoint)
