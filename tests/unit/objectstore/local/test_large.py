"""Large bodies in a local store: where they are copied, and what is left of a put that is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.errors import ClosedError
from slate_async.objectstore.local import LocalStore, file
from slate_async.objectstore.local.file import GROUP_BYTES, in_groups
from slate_async.objectstore.local.layout import TEMPORARY_FOLDER
from slate_async.objectstore.local.store import LARGE_BYTES
from slate_async.runtime.system import end_threads, system_runtime

T = TypeVar("T")


class Counted:
    """An offload that runs everything at once, and how often it did."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, function: Callable[[], T]) -> T:
        self.calls += 1
        return function()


async def test_a_large_body_is_copied_among_what_computes(tmp_path: Path) -> None:
    computing, waiting = Counted(), Counted()
    store = LocalStore(tmp_path, replace(system_runtime(), offload=computing, blocking=waiting))
    await store.put("small", bytes(LARGE_BYTES - 1))
    assert not computing.calls
    before = waiting.calls
    body = [b"a" * (LARGE_BYTES // 2), b"b" * LARGE_BYTES]
    await store.put("large", body)
    assert (computing.calls, waiting.calls) == (1, before + 1)
    assert (await store.get("large")).data == b"".join(body)
    await store.close()


async def test_a_very_large_body_is_copied_in_groups(tmp_path: Path) -> None:
    computing = Counted()
    store = LocalStore(tmp_path, replace(system_runtime(), offload=computing))
    rng = random.Random(1)
    body = [rng.randbytes(size) for size in (100, 2 * GROUP_BYTES + 1, 0, GROUP_BYTES, 7)]
    await store.put("large", body)
    assert computing.calls == 4
    assert (await store.get("large")).data == b"".join(body)
    await store.close()


@given(st.lists(st.integers(0, 25), max_size=8))
def test_groups_hold_all_in_order_and_no_more_than_they_may(sizes: list[int]) -> None:
    parts = [bytes([number]) * size for number, size in enumerate(sizes)]
    with mock.patch.object(file, "GROUP_BYTES", 10):
        groups = in_groups(parts)
    assert b"".join(bytes(part) for group in groups for part in group) == b"".join(parts)
    assert all(sum(map(len, group)) == 10 for group in groups[:-1])
    assert sum(map(len, groups[-1])) <= 10


async def test_a_put_under_way_when_the_store_is_closed_leaves_nothing(tmp_path: Path) -> None:
    """Its file would be made after all that is left was removed."""

    class Late:
        """Runs nothing until it is released."""

        def __init__(self) -> None:
            self.asked = asyncio.Event()
            self.functions: list[Callable[[], object]] = []

        async def run(self, function: Callable[[], T]) -> T:
            self.functions.append(function)
            self.asked.set()
            never: asyncio.Future[T] = asyncio.Future()
            return await never

    late = Late()
    store = LocalStore(tmp_path, replace(system_runtime(), offload=late))
    await store.put("small", b"")
    put = asyncio.ensure_future(store.put("large", bytes(LARGE_BYTES)))
    await late.asked.wait()
    await store.close()
    with pytest.raises(ClosedError):
        late.functions[0]()
    put.cancel()
    assert [path.name for path in (tmp_path / TEMPORARY_FOLDER).iterdir()] == []


async def test_a_large_put_cancelled_while_it_is_copied_leaves_nothing(tmp_path: Path) -> None:
    class Cancelled(Counted):
        async def run(self, function: Callable[[], T]) -> T:
            await super().run(function)
            raise asyncio.CancelledError

    runtime = replace(system_runtime(), offload=Cancelled())
    store = LocalStore(tmp_path, runtime)
    with pytest.raises(asyncio.CancelledError):
        await store.put("large", bytes(LARGE_BYTES))
    assert [path for path in (tmp_path / TEMPORARY_FOLDER).rglob("*") if path.is_file() and path.stat().st_size]
    await store.put("small", b"")
    assert not [path for path in (tmp_path / TEMPORARY_FOLDER).rglob("*") if path.is_file() and path.stat().st_size]
    assert [info.key async for info in store.list()] == ["small"]
    await store.close()
    end_threads(runtime)
