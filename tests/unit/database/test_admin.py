"""`Admin.clone`, `destroy` and `detach`, by URLs, with readers and compaction beside them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.errors import InvalidError
from tests.engine import Kind, contents
from tests.support.towns import numbered


@pytest.fixture
async def environment() -> AsyncIterator[slate.Environment]:
    async with slate.Environment(threads=1) as found:
        yield found


@pytest.fixture
def parent() -> str:
    return f"memory://{uuid.uuid4().hex}/parent"


@pytest.fixture
def child() -> str:
    return f"memory://{uuid.uuid4().hex}/nested/child"


async def fill(environment: slate.Environment, path: str, kind: Kind) -> None:
    async with environment.open(path, settings=kind.settings()) as db:
        for key, value in numbered(0, 5, b"sst").items():
            await db.put(key, value)
        await db.flush(l0=True)
        await db.put(b"0005", b"log")


EXPECTED = {**numbered(0, 5, b"sst"), b"0005": b"log"}


async def test_a_reader_of_a_clone_and_its_own_checkpoint(
    environment: slate.Environment, parent: str, child: str, kind: Kind
) -> None:
    await fill(environment, parent, kind)
    async with environment.open_admin(parent) as admin:
        made = await admin.clone(child, properties={"made": "for this"})
    assert (made.path, made.parent) == (child, parent)
    async with environment.open_reader(child, settings=kind.settings()) as reader:
        assert await contents(reader) == EXPECTED
        async with environment.open(child, settings=kind.settings()) as db, environment.open_admin(child) as admin:
            kept = await admin.checkpoints.create()
            await db.put(b"0000", b"mine")
            await db.compact(full=True)
            # The reader and the checkpoint are on versions that name the parent's SSTs, unless all lay in the log.
            assert await admin.detach() is not kind.wal_enabled
            async with environment.open_reader(child, checkpoint=kept.id, settings=kind.settings()) as then:
                assert await contents(then) == EXPECTED
            await reader.refresh()
            assert await reader.get(b"0000") == b"mine"
            await admin.checkpoints.delete(kept.id)
    async with environment.open_admin(child) as admin:
        assert await admin.detach()
    async with environment.open_admin(parent) as admin:
        assert [checkpoint for checkpoint in await admin.checkpoints.list() if checkpoint.owner == "clone"] == []
        await admin.destroy()
    assert not await holds(environment, parent, kind)
    assert await holds(environment, child, kind) == {**EXPECTED, b"0000": b"mine"}


async def holds(environment: slate.Environment, path: str, kind: Kind) -> dict[bytes, bytes]:
    async with environment.open(path, settings=kind.settings()) as db:
        return await contents(db)


async def test_arguments_that_will_not_do(environment: slate.Environment, parent: str) -> None:
    async with environment.open_admin(parent) as admin:
        for arguments, said in (
            ({"path": ""}, "URL of the clone"),
            ({"path": None}, "URL of the clone"),
            ({"path": b"/data"}, "URL of the clone"),
            ({"path": "memory://x/y", "checkpoint": 5}, "an id, a name or None"),
            ({"path": "memory://x/y", "properties": {"a": 1}}, "a map of str to str"),
            ({"path": "/data/elsewhere"}, "same kind of store"),
            ({"path": "memory://x/y"}, "no database"),
        ):
            with pytest.raises(InvalidError, match=said):
                await admin.clone(**arguments)
        with pytest.raises(InvalidError, match="no database"):
            await admin.destroy()
        with pytest.raises(InvalidError, match="no database"):
            await admin.detach()
    with pytest.raises(slate.ClosedError):
        await admin.destroy()


async def test_places_of_this_machine_may_be_paths(environment: slate.Environment, tmp_path: Path) -> None:
    async with environment.open(tmp_path / "db") as db:
        await db.put(b"a", b"1")
    async with environment.open_admin(tmp_path / "db") as admin:
        await admin.checkpoints.create(name="now")
        await admin.clone(tmp_path / "clone")
        await admin.mirror("now", tmp_path / "mirror")
    for copy in ("clone", "mirror"):
        async with environment.open_reader(tmp_path / copy) as reader:
            assert await contents(reader) == {b"a": b"1"}
