"""SIGKILL at a random time: everything acknowledged is there, no batch is torn, no write survived its predecessor."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import slate_async as slate
from tests.integration.places import LOGS, STORES, Place, make_place
from tests.integration.processes import ChildProcess
from tests.integration.writer import BATCH_EVERY, BATCH_ROWS, rows_of

TASKS = 8
ROUNDS_FULL = 5
"""Per combination; 12 combinations make 60 rounds."""


async def kill_one(place: Place, tag: str, rng: random.Random) -> dict[int, int]:
    """Run a writer, kill it; how many writes of each task it acknowledged."""
    arguments = ["tests/integration/writer.py", *place.arguments(), "--tag", tag, "--tasks", str(TASKS)]
    async with ChildProcess(arguments) as child:
        await child.wait_for_line("open")
        enough = rng.randint(1, 300)
        async for _ in child.lines():
            if len(child.received) > enough:
                break
        await asyncio.sleep(rng.uniform(0, 0.05))
        await child.kill()
    return acknowledged(child.received)


def acknowledged(lines: list[str]) -> dict[int, int]:
    counts = dict.fromkeys(range(TASKS), 0)
    for line in lines:
        kind, *rest = line.split()
        if kind == "ack":
            task, number = map(int, rest)
            assert number == counts[task], "a task's acknowledgements come in order"
            counts[task] += 1
        else:
            assert kind == "open", line
    return counts


async def check(db: slate.Db, tag: str, counts: dict[int, int]) -> None:
    """Every acknowledged write is in, with its value; what else is in is whole and has no gap before it."""
    stored = {key: value async for key, value in db.scan(prefix=tag.encode() + b"/")}
    for task, count in counts.items():
        number = 0
        while rows := present(stored, tag, task, number):
            for key, value in rows:
                assert stored.pop(key) == value
            number += 1
        assert number >= count, f"task {task}: {count} acknowledged, {number} there"
    assert not stored, f"writes survived although an earlier one of their task did not: {sorted(stored)[:3]}"


def present(stored: dict[bytes, bytes], tag: str, task: int, number: int) -> list[tuple[bytes, bytes]]:
    rows = rows_of(tag, task, number)
    found = sum(key in stored for key, _ in rows)
    assert found in (0, len(rows)), f"a torn batch: {found} of {len(rows)} rows of write {number} of task {task}"
    return rows if found else []


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log[0]}-{'wal' if log[1] else 'no-wal'}")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.timeout(300)
async def test_nothing_acknowledged_is_lost(
    store: str,
    log: tuple[str, bool],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    aws_environment: dict[str, str],
    full: bool,
    slice_seed: int,
) -> None:
    endpoint = None if store == "local" else request.getfixturevalue("s3_endpoint")
    small = {"l0_sst_bytes": 32 * 1024, "flush_bytes": 4096, "block_bytes": 1024}
    place = await make_place(store, log, tmp_path, endpoint, **small)
    rng = random.Random(f"{slice_seed} {store} {log}")
    rounds: list[tuple[str, dict[int, int]]] = []
    for number in range(ROUNDS_FULL if full else 1):
        tag = f"round{number}"
        rounds.append((tag, await kill_one(place, tag, rng)))
        async with place.open() as db:
            for earlier, counts in rounds:
                await check(db, earlier, counts)
            await db.put(b"between rounds", str(number).encode())
            assert await db.get(b"between rounds") == str(number).encode()


def test_the_writer_mixes_puts_and_batches() -> None:
    assert len(rows_of("t", 0, BATCH_EVERY)) == BATCH_ROWS
    assert len(rows_of("t", 0, BATCH_EVERY + 1)) == 1
