"""What is cancelled from outside: every task of the loop, an opening again and again, a closing at its worst time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import anyio
import pytest

import slate_async as slate
from metastores.factories import PutIfAbsentFactory
from metastores.if_match import ObjectRegister
from metastores.names import MANIFEST, Layout
from metastores.protocol import ConditionalObjects, MetaStore, Register
from metastores.put_if_absent import PutIfAbsentMetaStore
from slate_async.database.environment import Environment
from slate_async.errors import UnavailableError
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ByteRange, GetResult
from tests.engine import (
    CONTIGUOUS,
    EPOCHS_SST,
    Kind,
    ManualClock,
    StoreInHand,
    memory_store,
    on,
    open_db,
    runtime,
    settle,
    starts,
    until,
)

TORN_DOWN = """
import asyncio
import slate_async as slate

async def user(written):
    async with slate.open("memory://torn") as db:
        for number in range(20):
            await db.put(b"%d" % number, b"", await_durable=False)
        written.set()
        await asyncio.sleep(3600)

async def main():
    written = asyncio.Event()
    task = asyncio.create_task(user(written))
    await written.wait()

asyncio.run(main())
"""


def test_a_loop_that_is_torn_down_ends() -> None:
    done = subprocess.run([sys.executable, "-c", TORN_DOWN], capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"never awaited" not in done.stderr


@pytest.mark.parametrize("closing_first", [False, True])
async def test_a_program_that_cancels_all_tasks_gets_an_error_and_can_close(kind: Kind, closing_first: bool) -> None:
    store = StoreInHand(memory_store())
    db = await open_db(store, kind)
    store.hold = True
    handle = await db.put(b"a", b"1", await_durable=False)
    (waiter,) = starts(handle.durable())
    others = {asyncio.current_task(), waiter}
    closing = starts(db.close()) if closing_first else []
    await settle()
    others.update(closing)
    for task in asyncio.all_tasks() - others:
        task.cancel()
    await asyncio.wait_for(asyncio.wait([waiter]), 10)
    error = waiter.exception()
    assert isinstance(error, slate.ClosedError)
    assert error.outcome == "unknown"
    await asyncio.wait_for(asyncio.gather(db.close(), *closing, return_exceptions=True), 10)
    assert db.status().state in ("closed", "failed")
    await settle()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_scope_that_cancels_every_wait_of_an_opening_leaks_nothing() -> None:
    cancelled = 0
    for turns in range(1, 60):
        environment = Environment()
        with anyio.CancelScope() as scope:
            cutting = asyncio.ensure_future(_cut(scope, turns))
            db = await environment.open(f"memory://cut-{turns}")
        await cutting
        if scope.cancelled_caught:
            cancelled += 1
        else:
            await db.close()
        await environment.close()  # raises if a database counts as open
        assert environment._clients._stores._users == {}
    assert cancelled
    await settle()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def _cut(scope: anyio.CancelScope, turns: int) -> None:
    await settle(turns)
    scope.cancel()


async def test_a_write_lost_in_a_cancelled_closing_is_reported_by_the_next() -> None:
    store = StoreInHand(memory_store())
    db = await open_db(store, CONTIGUOUS, retry_deadline_ms=50, request_timeout_ms=50)
    store.hold = True
    await db.put(b"a", b"1", await_durable=False)
    closing = asyncio.ensure_future(db.close())
    await until(lambda: bool(store.held), "the last put")
    closing.cancel()
    await asyncio.wait([closing])
    store.fail_before = lambda key: UnavailableError("down", outcome="not_applied")
    store.release()
    with pytest.raises(slate.UnavailableError):
        await db.close()
    await db.close()


class Metadata(PutIfAbsentFactory):
    """The default, whose clients take a turn to close. ``used``: how many are not closed."""

    used = 0

    def manifest(self, objects: ConditionalObjects, name: str, layout: Layout = MANIFEST) -> MetaStore:
        metadata = self
        metadata.used += 1

        class Manifest(PutIfAbsentMetaStore):
            async def close(self) -> None:
                await asyncio.sleep(0)
                metadata.used -= 1

        return Manifest(objects, layout=layout)

    def register(self, objects: ConditionalObjects, name: str) -> Register:
        metadata = self
        metadata.used += 1

        class WriterRegister(ObjectRegister):
            async def close(self) -> None:
                await asyncio.sleep(0)
                metadata.used -= 1

        return WriterRegister(objects, "writer/current")


OPENINGS: dict[str, tuple[str, dict[str, bool]]] = {
    "writer": ("open", {}),
    "standby": ("open", {"standby": True}),
    "reader": ("open_reader", {}),
    "compactor": ("open_compactor", {}),
    "collector": ("open_gc", {}),
    "admin": ("open_admin", {}),
    "ingest": ("open_ingest", {}),
    "ingest that replaces": ("open_ingest", {"replace": True}),
}


class SlowStore(MemoryStore):
    """Answers a turn later."""

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        await asyncio.sleep(0)
        return await super().get(key, byte_range)

    async def put(self, key: str, *args: Any, **more: Any) -> str:
        await asyncio.sleep(0)
        return await super().put(key, *args, **more)


@pytest.mark.parametrize("what", OPENINGS)
async def test_an_opening_cancelled_at_any_of_its_waits_gives_everything_back(what: str) -> None:
    metadata = Metadata()
    place: dict[str, Any] = {"name": "memory://test", "metastore": metadata, "settings": EPOCHS_SST.settings()}
    others, turns, opened = asyncio.all_tasks(), 0, False
    name, more = OPENINGS[what]
    while not opened:
        store = SlowStore(ManualClock())
        async with on(runtime()).open(store, **place) as db:  # and closed: no standby need wait for beats
            await db.put(b"a", b"1")
        opening = asyncio.ensure_future(_opened(getattr(on(runtime()), name)(store, **place, **more)))
        await settle(turns)
        opening.cancel()
        await asyncio.wait([opening])
        if opened := not opening.cancelled():
            await opening.result().close()
        await settle()
        assert (metadata.used, asyncio.all_tasks() - others) == (0, set()), f"after {turns} turns"
        turns += 1
    assert turns > 1


async def _opened(opening: slate.Opening[Any]) -> Any:
    return await opening
