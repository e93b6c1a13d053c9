"""The metastores' view of an object store."""

from __future__ import annotations

import pytest

from metastores.protocol import ConditionalObjects, ListedObject, StoredObject
from slate_async.errors import InvalidError
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.prefixed import PrefixedStore, whole_key
from slate_async.runtime.system import SystemClock


async def test_conditions_become_none() -> None:
    store = MemoryStore(SystemClock())
    objects: ConditionalObjects = MetaObjects(PrefixedStore(store, "db"))
    assert await objects.get("a") is None
    first = await objects.create("a", b"1")
    assert first is not None
    assert await objects.create("a", b"2") is None
    assert await objects.replace("a", b"3", '"no such"') is None
    second = await objects.replace("a", b"4", first)
    assert second is not None
    assert await objects.replace("a", b"5", first) is None
    assert await objects.get("a") == StoredObject(b"4", second)
    third = await objects.put("b", b"6")
    listed = [found async for found in objects.list("")]
    times = [info.last_modified_ms async for info in store.list()]
    assert listed == [ListedObject("a", second, times[0]), ListedObject("b", third, times[1])]
    assert [found.key async for found in objects.list("", "a")] == ["b"]
    await objects.delete(["a", "b", "c"])
    assert [info async for info in store.list()] == []


async def test_a_view_ends_at_its_folder() -> None:
    store = MemoryStore(SystemClock())
    for key in ("db/a", "db/b", "db-2/a", "db", "dbx"):
        await store.put(key, b"")
    view = PrefixedStore(store, "db/")
    assert [info.key async for info in view.list()] == ["a", "b"]
    await view.close()
    assert (await store.get("db/a")).data == b""
    for wrong in ("../db", "a//b"):
        with pytest.raises(InvalidError):
            PrefixedStore(store, wrong)
    assert (whole_key(store, "a"), whole_key(PrefixedStore(view, "1"), "a")) == ("a", "db/1/a")
