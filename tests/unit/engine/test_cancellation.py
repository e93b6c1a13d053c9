"""What is cancelled from outside: every task of the loop, an opening again and again, a closing at its worst moment."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import anyio
import pytest

import slate_async as slate
from slate_async.environment import Environment
from slate_async.errors import UnavailableError
from tests.engine import CONTIGUOUS, Kind, StoreInHand, memory_store, open_db, settle, starts, until

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
async def test_a_program_that_cancels_all_tasks_is_told_and_can_close(kind: Kind, closing_first: bool) -> None:
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
        assert environment._clients._stores.clients() == []
    assert cancelled
    await settle()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def _cut(scope: anyio.CancelScope, turns: int) -> None:
    await settle(turns)
    scope.cancel()


async def test_a_write_lost_in_a_cancelled_closing_is_told_by_the_next() -> None:
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
