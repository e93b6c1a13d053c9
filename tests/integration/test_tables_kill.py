"""Processes that append to one table, delete from it, merge its blocks, vacuum and read it, and are killed at random,
over real stores.

Then every acknowledged append is in once, but what was deleted; and no reader has seen a part of one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import slate_async as slate
from tests.integration.places import make_bucket, make_table, url_query
from tests.integration.processes import ChildProcess
from tests.integration.table_worker import DATABASE, ROWS, TABLE, count
from tests.slices import sample

ROLES = (("appender", "a"), ("appender", "b"), ("deleter", ""), ("compactor", ""), ("vacuum", ""), ("reader", ""))
ROLES_FULL = (*(("appender", name) for name in "cdef"), ("deleter", ""), ("compactor", ""), *ROLES)
"""Eight that append or delete, two that merge, one that vacuums, one that reads."""
SECONDS = 15
SECONDS_FULL = 180
"""Of killing."""
BEGUN = ("ack", "seen", "deleted", "compacted", "vacuumed")
PLACES = ["local", "s3+dynamodb"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One of the places, another one with every commit; all of them in the long form."""
    full = metafunc.config.getoption("--full")
    metafunc.parametrize("store", PLACES if full else sample(PLACES, 1, "kills of tables"))


@dataclass
class Worker:
    """The processes that had one role, one after another. An appender goes on with what it has not acknowledged."""

    role: str
    name: str
    options: list[str]
    child: ChildProcess | None = None
    lines: list[str] = field(default_factory=list)

    async def start(self) -> None:
        first = max((int(words[0]) for words in lines_of([self], "ack")), default=0) + 1
        named = ["--name", self.name, "--first", str(first)] if self.name else []
        self.child = ChildProcess(["tests/integration/table_worker.py", self.role, *self.options, *named])
        await self.child.__aenter__()

    async def kill(self) -> None:
        child, self.child = self.child, None
        if child is not None:
            ended = child.returncode is not None
            await child.__aexit__(None, None, None)
            self.lines += child.received
            assert not ended, f"{self.role} ended by itself: {child.received[-3:]}"


def lines_of(workers: list[Worker], kind: str) -> Iterator[list[str]]:
    """The words after ``kind`` of all such lines."""
    for worker in workers:
        for line in worker.lines:
            first, *words = line.split(" ")
            if first == kind:
                yield words


@pytest.mark.timeout(900)
async def test_processes_that_are_killed_lose_nothing(
    store: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    aws_environment: dict[str, str],
    full: bool,
    slice_seed: int,
) -> None:
    rng = random.Random(f"{slice_seed} {store}")
    path, metastore = str(tmp_path / "lake"), None
    if store != "local":
        endpoint = request.getfixturevalue("s3_endpoint")
        path, metastore = f"s3://{make_bucket(endpoint)}/lake{url_query(endpoint)}", await make_table(endpoint)
    options = [path, *(["--metastore", metastore] if metastore else [])]
    workers = [Worker(role, name, options) for role, name in (ROLES_FULL if full else ROLES)]
    kills = 0
    try:
        for worker in workers:
            await worker.start()
        for worker in workers:
            assert worker.child is not None
            await worker.child.wait_for_line(lambda line: line.startswith(BEGUN), timeout=120)
        end = time.monotonic() + (SECONDS_FULL if full else SECONDS)
        while time.monotonic() < end:
            await asyncio.sleep(rng.uniform(0.1, 1.0))
            worker = rng.choice(workers)
            await worker.kill()
            await worker.start()
            kills += 1
    finally:
        for worker in workers:
            await worker.kill()
    async with slate.open_catalog(path, metastore=metastore) as catalog:
        table = await catalog.table(DATABASE, TABLE)
        found = await count(table)
        await table.compact()
        await table.vacuum(retain_ms=0, retain_versions=1, min_age_ms=0)
        assert await count(table) == found
    assert list(lines_of(workers, "torn")) == []
    deleting = {(name, int(n)) for name, n in lines_of(workers, "deleting")}
    deleted = {(name, int(n)) for name, n in lines_of(workers, "deleted")}
    acknowledged = {(worker.name, int(words[0])) for worker in workers for words in lines_of([worker], "ack")}
    assert kills > 5
    assert len(acknowledged) > 20
    assert deleted
    assert list(lines_of(workers, "compacted"))
    assert list(lines_of(workers, "vacuumed"))
    assert set(found.values()) <= {ROWS}, "an append is in twice, or in part"
    assert acknowledged - deleting <= set(found), "an acknowledged append is lost"
    assert not deleted & set(found), "a deleted row came back"
