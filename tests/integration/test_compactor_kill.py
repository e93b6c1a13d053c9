"""Compactor processes beside a busy writer, killed at any time, resumed, several at once: nothing is lost."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import slate_async as slate
from tests.integration.places import LOGS, STORES, Place, make_place
from tests.integration.processes import ChildProcess
from tests.slices import sample

KEYS = 200
KILLS = 1
KILLS_FULL = 8
PAUSE_S = 0.1
"""Between writes, so that a compactor of this machine keeps up."""
SMALL = {
    "auto_compaction": False,
    "l0_compact_ssts": 2,
    "l0_max_ssts": 100,
    "l0_sst_bytes": 8_000,
    "flush_bytes": 2_000,
    "block_bytes": 500,
    "sst_bytes": 8_000,
    "manifest_poll_interval_ms": 100,
}


def process(place: Place) -> ChildProcess:
    return ChildProcess(["tests/integration/compactor.py", *place.arguments()])


async def write(db: slate.Db, model: dict[bytes, bytes], rng: random.Random) -> None:
    """Overwrite and delete for ever; ``model`` is what must be there, for writes that were acknowledged."""
    while True:
        batch = slate.WriteBatch()
        changed: dict[bytes, bytes | None] = {}
        for _ in range(20):
            key = b"%04d" % rng.randrange(KEYS)
            changed[key] = None if rng.random() < 0.3 else rng.randbytes(rng.randrange(100))
        for key, value in changed.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        await db.write(batch)
        await asyncio.sleep(PAUSE_S)
        for key, value in changed.items():
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value


async def kill_compactors(place: Place, rng: random.Random, kills: int) -> None:
    """Start one after another and kill each after some events, wherever that finds it."""
    for _ in range(kills):
        async with process(place) as child:
            await child.wait_for_line("open")
            enough = rng.randint(2, 12)
            async with asyncio.timeout(60):
                async for _ in child.lines():
                    if len(child.received) > enough:
                        break
            await asyncio.sleep(rng.uniform(0, 0.1))
            await child.kill()


async def one_lives(place: Place) -> None:
    """Of several started at once all but one are fenced, and that one compacts."""
    async with AsyncExitStack() as stack:
        children = [await stack.enter_async_context(process(place)) for _ in range(3)]
        epochs = [int((await child.wait_for_line("open")).split()[1]) for child in children]
        for child, epoch in zip(children, epochs, strict=True):
            if epoch < max(epochs):
                assert await child.wait_for_line("closed") == "closed fenced FencedError"
        newest = children[epochs.index(max(epochs))]
        await newest.wait_for_line("committed", start=len(newest.received))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("wal", [True, False], ids=["wal", "no-wal"])
@pytest.mark.timeout(600)
async def test_killed_compactors_lose_nothing(
    store: str,
    wal: bool,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    aws_environment: dict[str, str],
    full: bool,
    slice_seed: int,
) -> None:
    endpoint = None if store == "local" else request.getfixturevalue("s3_endpoint")
    logs = [log for log in LOGS if log[1] is wal]
    for log in logs if full else sample(logs, 1):
        rng = random.Random(f"{slice_seed} {store} {log}")
        place = await make_place(store, log, tmp_path / log[0], endpoint, **SMALL)
        model: dict[bytes, bytes] = {}
        async with place.open() as db:
            writing = asyncio.create_task(write(db, model, rng))
            await kill_compactors(place, rng, KILLS_FULL if full else KILLS)
            await one_lives(place)
            writing.cancel()
            await asyncio.wait([writing])
            assert writing.cancelled(), writing.exception()
            await db.put(b"last", b"one")
        async with place.open() as db:
            found = {key: value async for key, value in db.scan()}
            assert found.pop(b"last") == b"one"
            unsure = {key for key in found.keys() | model.keys() if found.get(key) != model.get(key)}
            assert len(unsure) <= 20, "only the write that was broken off may differ"
            await db.compact(full=True)
            after = {key: value async for key, value in db.scan()}
            assert after.pop(b"last") == b"one"
            assert after == found
            assert db.status().sorted_runs == 1
