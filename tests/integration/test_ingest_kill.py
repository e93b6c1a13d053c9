"""A driver of bulk ingests beside a live writer, in processes of their own: SIGKILL of either at a random time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import slate_async as slate
from tests.integration.driver import ROWS, rows_of
from tests.integration.places import LOGS, Place, make_place
from tests.integration.processes import ChildProcess
from tests.integration.test_kill import TASKS, acknowledged, check

DRIVER = "tests/integration/driver.py"
WRITER = "tests/integration/writer.py"
STREAM = "ingested"
ROUNDS = 2
ROUNDS_FULL = 20
PAUSE = "0.01"


async def round_of(place: Place, tag: str, start: int, rng: random.Random) -> tuple[list[str], list[str]]:
    """Run both; one of them is killed after a few lines of the driver, the other one after it."""
    writing = [WRITER, *place.arguments(), "--tag", tag, "--tasks", str(TASKS), "--pause", PAUSE]
    driving = [DRIVER, *place.arguments(), "--tag", STREAM, "--start", str(start)]
    async with ChildProcess(writing) as writer:
        await writer.wait_for_line("open")
        async with ChildProcess(driving) as driver:
            enough = rng.randint(1, 12)
            async for _ in driver.lines():
                if len(driver.received) > enough:
                    break
            await asyncio.sleep(rng.uniform(0, 0.1))
            for victim in rng.sample([writer, driver], 2):
                await victim.kill()
                await asyncio.sleep(rng.uniform(0, 0.2))
    return writer.received, driver.received


def told(lines: Sequence[str]) -> list[int]:
    """Batches that the driver reported as in the database."""
    assert not [line for line in lines if line.startswith(("failed", "late"))], lines
    return [int(line.split()[1]) for line in lines if line.startswith("in ")]


async def check_ingests(db: slate.Db, known: Sequence[int]) -> int:
    """Every batch is in as a whole or not at all, none behind one that is missing; how many there are."""
    stored = {key: value async for key, value in db.scan(prefix=STREAM.encode() + b"/")}
    number = 0
    while rows := {key: value for key, value in rows_of(STREAM, number).items() if key in stored}:
        assert rows == rows_of(STREAM, number), f"a torn ingest: {len(rows)} of {ROWS} rows of batch {number}"
        for key, value in rows.items():
            assert stored.pop(key) == value
        number += 1
    assert not stored, f"a batch is in, and one before it is not: {sorted(stored)[:3]}"
    assert number > max(known, default=-1), f"batch {max(known)} was told to be in"
    return number


@pytest.mark.parametrize(
    ("store", "log"),
    [*(("local", log) for log in LOGS), ("s3", LOGS[0])],
    ids=lambda one: one if isinstance(one, str) else f"{one[0]}-{'wal' if one[1] else 'no-wal'}",
)
@pytest.mark.timeout(300)
async def test_each_batch_is_in_once_and_as_a_whole(
    store: str,
    log: tuple[str, bool],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    aws_environment: dict[str, str],
    full: bool,
    slice_seed: int,
) -> None:
    endpoint = None if store == "local" else request.getfixturevalue("s3_endpoint")
    small = {"l0_sst_bytes": 32 * 1024, "flush_bytes": 4096, "manifest_poll_interval_ms": 50}
    place = await make_place(store, log, tmp_path, endpoint, **small)
    rng = random.Random(f"{slice_seed} {store} {log}")
    counts: dict[str, dict[int, int]] = {}
    known: list[int] = []
    for number in range(ROUNDS_FULL if full else ROUNDS):
        written, driven = await round_of(place, f"w{number}", max(known, default=-1) + 1, rng)
        counts[f"w{number}"] = acknowledged(written)
        known += told(driven)
    async with place.open() as db:
        for tag, acked in counts.items():
            await check(db, tag, acked)
        await check_ingests(db, known)
        assert await once(place) >= len(set(known))


async def once(place: Place) -> int:
    """No batch was applied twice; how many were."""
    async with slate.open_admin(place.path, metastore=place.metastore) as admin:
        batches = [job.batch_id for job in await admin.ingests.list() if job.state == "applied"]
        assert len(set(batches)) == len(batches)
        assert (await admin.verify()).findings == ()
    return len(batches)
