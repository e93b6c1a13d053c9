"""What processes take at most: each part runs alone in one, whose peak the operating system tells."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import slate_async as slate

MIB = 1 << 20
VALUE_BYTES = 60 * MIB
BUDGET_MIB = 256
"""The default of `decode_memory_bytes`."""
SPARE_MIB = 160
"""A row on its way to its consumer, rows that several scans hand over at once, and what allocators keep."""


def peak_mib(folder: Path, body: str) -> int:
    """MiB of memory that ``body`` takes at its peak above what the process has before. It finds ``slate``, ``folder``
    and ``MIB``, and may await."""
    program = f"""
        import asyncio, gc, resource, sys
        import slate_async as slate
        from slate_async.settings import Settings
        MIB = 1 << 20
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        async def warm_up():
            async with slate.open("memory://warm") as db:
                await db.put(b"k", b"v")
                await db.flush(l0=True)
                assert [row async for row in db.scan()]
        async def main(folder):
{textwrap.indent(textwrap.dedent(body), " " * 12)}
        asyncio.run(warm_up())
        before = peak()
        asyncio.run(main(sys.argv[1]))
        print("peak", peak() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split("peak ")[1])


@pytest.fixture(scope="module")
def overlapping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three SSTs whose key ranges overlap, with four rows of 60 MB that take next to nothing when they are stored."""
    folder = tmp_path_factory.mktemp("overlapping")

    async def fill() -> None:
        settings = slate.Settings(auto_compaction=False, auto_gc=False)
        async with slate.open(folder, settings=settings) as db:
            for part, keys in enumerate((b"az", b"b", b"c")):
                for key in keys:
                    await db.put(bytes([key]), bytes([part]) * VALUE_BYTES)
                await db.flush(l0=True)

    asyncio.run(fill())
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < MIB
    return folder


def test_many_scans_of_large_rows_stay_within_the_memory_for_decoding(overlapping: Path) -> None:
    """16 of them merge three sources: 48 rows of 60 MB are wanted at once, 2.9 GB."""
    body = """
        async with slate.open_reader(folder) as db:
            async def scan():
                rows = 0
                async for key, value in db.scan():
                    assert len(value) == 60 * MIB
                    rows += 1
                    del value
                return rows
            assert await asyncio.gather(*(scan() for _ in range(16))) == [4] * 16
    """
    assert peak_mib(overlapping, body) < BUDGET_MIB + SPARE_MIB
