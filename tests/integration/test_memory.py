"""What processes take at most: each part runs alone in one, whose peak the operating system tells."""

from __future__ import annotations

import asyncio
import shutil
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


LITTLE = """
settings = Settings(
    replay_memory_bytes=128 * MIB, decode_memory_bytes=128 * MIB, max_unflushed_bytes=32 * MIB, max_value_bytes=4 * MIB
)
"""
LITTLE_MIB = 128

SST_ROLES = {
    "reader": """
        async with slate.open_reader(folder, settings=settings) as db:
            assert len([key async for key, _ in db.scan()]) == 4
    """,
    "compactor": """
        async with slate.open_compactor(folder, settings=settings, auto_compaction=False) as compactor:
            await compactor.compact(full=True)
    """,
    "verify": """
        async with slate.open_admin(folder, settings=settings) as admin:
            assert (await admin.verify()).clean
    """,
}
"""What reads the SSTs of a folder."""


@pytest.mark.parametrize("role", SST_ROLES)
def test_ssts_of_few_stored_bytes_take_little_memory(overlapping: Path, tmp_path: Path, role: str) -> None:
    copy = tmp_path / "db"
    shutil.copytree(overlapping, copy)
    body = textwrap.dedent(LITTLE) + textwrap.dedent(SST_ROLES[role])
    assert peak_mib(copy, body) < LITTLE_MIB + SPARE_MIB


LOG_ROWS = 900
REFUSED = """
        try:
            async with {opening}:
                raise AssertionError("it opened")
        except slate.ConfigError as error:
            assert "replay_memory_bytes" in str(error)
"""
LOG_ROLES = {
    "follower": REFUSED.format(opening="slate.open_reader(folder, settings=settings)"),
    "reader that writes nothing": REFUSED.format(opening="slate.open_reader(folder, settings=settings, pin=False)"),
    "takeover": REFUSED.format(opening="slate.open(folder, settings=settings)"),
    "verify": SST_ROLES["verify"],
}
"""What reads the log of a folder."""


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of some 72 KB whose writer died with 900 MB of rows that no SST holds."""
    folder = tmp_path_factory.mktemp("log")
    body = f"""
        import os
        settings = Settings(max_unflushed_bytes=2 << 30, l0_sst_bytes=1 << 30, flush_bytes=16 * MIB)
        db = await slate.open(folder, settings=settings)
        value = bytes(MIB)
        for number in range({LOG_ROWS}):
            await db.put(b"%04d" % number, value, await_durable=number % 16 != 15)
        await db.flush()
        print("peak 0", flush=True)
        os._exit(0)
    """
    peak_mib(folder, body)
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < MIB // 4
    return folder


@pytest.mark.parametrize("role", LOG_ROLES)
def test_a_log_of_few_stored_bytes_takes_little_memory(long_log: Path, tmp_path: Path, role: str) -> None:
    copy = tmp_path / "db"
    shutil.copytree(long_log, copy)
    body = textwrap.dedent(LITTLE) + textwrap.dedent(LOG_ROLES[role])
    assert peak_mib(copy, body) < LITTLE_MIB + SPARE_MIB
