"""The change feed of a clone, which begins with its parent's history, and of a mirror, which has no log."""

from __future__ import annotations

from pathlib import Path

import pytest

import slate_async as slate
from tests.engine import KINDS, Kind
from tests.support.feeds import all_of, taken

KIND = pytest.mark.parametrize("kind", KINDS, ids=str)


@KIND
async def test_a_clones_feed_begins_with_its_parents_history(kind: Kind, tmp_path: Path) -> None:
    parent, clone = str(tmp_path / "parent"), str(tmp_path / "clone")
    async with slate.open(parent, settings=kind.settings()) as db:
        for number in range(1, 4):
            await db.put(b"a", b"%d" % number)
        await db.flush(l0=True)
        await db.put(b"a", b"4")
        async with slate.open_admin(parent) as admin:
            await admin.clone(clone)
        await db.put(b"a", b"the parent's own")
    async with slate.open(clone, settings=kind.settings()) as db:
        assert (await db.put(b"a", b"5")).seq == 5
        found = await all_of(db.changes(follow=False))
        assert [(update.seq, update.value) for update in found] == [(n, b"%d" % n) for n in range(1, 6)]


@KIND
async def test_a_mirrors_feed_goes_on_with_each_version_it_shows(kind: Kind, tmp_path: Path) -> None:
    source, mirror = str(tmp_path / "source"), str(tmp_path / "mirror")

    async def mirrored() -> None:
        async with slate.open_admin(source) as admin:
            made = await admin.checkpoints.create()
            await admin.mirror(made.id, mirror)

    async with slate.open(source, settings=kind.settings()) as db:
        await db.put(b"a", b"1")
        await db.put(b"a", b"2")
        await mirrored()
        settings = slate.Settings(manifest_poll_interval_ms=10)
        async with slate.open_reader(mirror, settings=settings) as reader, reader.changes() as feed:
            assert [change.value for change in await taken(feed, 2)] == [b"1", b"2"]
            await db.put(b"a", b"3")
            await db.flush(l0=True)
            await db.put(b"b", b"4")
            await mirrored()
            await reader.refresh()
            assert [(change.seq, change.value) for change in await taken(feed, 2)] == [(3, b"3"), (4, b"4")]
