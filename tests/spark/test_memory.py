"""A database larger than the memory of a worker is compacted into one run, by workers whose memory has a bound."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.engine.compaction.local_executor import (
    LEAST_READ_AHEAD_BYTES,
    MOST_READ_AHEAD_BYTES,
    READ_AHEAD_BYTES,
    ROUND_BYTES,
)
from tests.integration.processes import ChildProcess
from tests.spark import memory_rows

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("in_turn")]
LIMIT_S = 600.0
MIB = 1 << 20
SST_BYTES = 4 * MIB
BOUND_BYTES = 496 * MIB
"""Of a worker's address space, of which 370 MiB are the interpreter, the libraries and the stacks of threads."""
SMALL_ROWS = 500


@dataclass(frozen=True)
class Size:
    """Of a database, in bytes and in ingests that all have rows of every key range."""

    nbytes: int
    sources: int


SLICE, FULL = Size(BOUND_BYTES * 3 // 2, 8), Size(4 << 30, 16)


def of_a_range(sources: int) -> int:
    """What docs/design/compaction.md says that a key range takes, in bytes."""
    read_ahead = min(MOST_READ_AHEAD_BYTES, max(LEAST_READ_AHEAD_BYTES, READ_AHEAD_BYTES // sources))
    return sources * (3 * read_ahead + SST_BYTES // 50) + 3 * ROUND_BYTES + 2 * SST_BYTES


def most(notes: Path) -> int:
    return max(int(note.read_text()) for note in notes.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of which nothing is kept for anybody to look at: it is large."""
    yield tmp_path
    shutil.rmtree(tmp_path)


async def test_a_database_larger_than_a_workers_memory_becomes_one_run(folder: Path, full: bool) -> None:
    size = FULL if full else SLICE
    rows = size.nbytes // memory_rows.ROW_BYTES
    small, large, notes = folder / "small", folder / "large", folder / "notes"
    await memory_rows.fill(small, SMALL_ROWS, size.sources, SST_BYTES)
    await memory_rows.fill(large, rows, size.sources, SST_BYTES)
    command = ["-m", "tests.spark.memory_driver", str(small), str(large), str(notes), str(BOUND_BYTES), str(SST_BYTES)]
    async with ChildProcess(command) as driver:
        await driver.wait_for_line("done", timeout=LIMIT_S)
        *compacted, bound, held, _ = driver.received
    assert compacted == ["compacted 1", "compacted 1"]
    assert bound == f"bound {BOUND_BYTES}"
    assert int(held.removeprefix("held ")) < size.nbytes / 2, "one worker can hold the database"
    before, after = most(notes / "small"), most(notes / "large")
    print(f"{size}: of {before / MIB:.0f} MiB to {after / MIB:.0f}, formula {of_a_range(size.sources) / MIB:.0f}")
    assert after - before <= of_a_range(size.sources)
    async with slate.open_admin(large) as admin:
        assert len((await admin.inspect.manifest()).state.runs) == 1
        assert (await admin.verify()).clean
    assert await memory_rows.count(large) == rows
