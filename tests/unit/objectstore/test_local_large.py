"""Large bodies in a local store: where they are copied, and what is left of a put that is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from slate_async.objectstore.local import LocalStore
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
