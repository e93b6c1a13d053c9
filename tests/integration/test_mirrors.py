"""Mirrors from one kind of store to another, by processes that are killed, beside a writer; and verification there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import slate_async as slate
from tests.engine import contents
from tests.integration.places import Place, make_place
from tests.integration.processes import ChildProcess

SMALL: dict[str, object] = {"l0_sst_bytes": 4_096, "block_bytes": 512, "auto_compaction": False, "l0_max_ssts": 1_000}
PAIRS = [
    ("local", "s3+dynamodb", ("contiguous", True)),
    ("s3+dynamodb", "local", ("epoch_prefixed", False)),
    ("s3+if-match", "s3", ("epoch_prefixed", True)),
]
KILLS = (1, 4)


@pytest.fixture(params=PAIRS, ids=lambda one: f"{one[0]}-to-{one[1]}-{one[2][0]}-{'wal' if one[2][1] else 'sst'}")
async def places(
    request: pytest.FixtureRequest, tmp_path: Path, aws_environment: dict[str, str]
) -> tuple[Place, Place]:
    """A source, and an empty place in another store."""
    source, target, log = request.param
    endpoint = request.getfixturevalue("s3_endpoint")
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    return (
        await make_place(source, log, tmp_path / "from", endpoint, **SMALL),
        await make_place(target, log, tmp_path / "to", endpoint, **SMALL),
    )


@pytest.fixture
async def environment() -> AsyncIterator[slate.Environment]:
    """One for all parts: clients of real stores take long to make."""
    async with slate.Environment(threads=2) as found:
        yield found


async def fill(db: slate.Db, first: int, end: int) -> None:
    """Rows of about 100 bytes, the last few in the log only."""
    for start in range(first, end, 100):
        batch = slate.WriteBatch()
        for number in range(start, min(start + 100, end)):
            batch.put(b"%06d" % number, b"%090d" % number)
        await db.write(batch)
    await db.flush(l0=True)
    await db.put(b"log", b"%d" % end)


async def shown(environment: slate.Environment, place: Place) -> dict[bytes, bytes]:
    async with environment.open_reader(place.path, metastore=place.metastore, pin=False) as reader:
        return await contents(reader)


async def mirrored(
    environment: slate.Environment, source: Place, target: Place, checkpoint: str, kills: Sequence[int] = ()
) -> int:
    """Mirror in processes that are killed after so many SSTs, then in one that lives; how many SSTs that one found."""
    arguments = [source.path, source.metastore or "-", target.path, target.metastore or "-", checkpoint]
    for after in kills:
        async with ChildProcess(["tests/integration/mirrorer.py", *arguments]) as child:
            async for line in child.lines():
                if line.startswith("done") or int(line.split()[0]) >= after:
                    break
            await child.kill()
    async with environment.open_admin(source.path, metastore=source.metastore) as admin:
        report = await admin.mirror(checkpoint, target.path, metastore=target.metastore, prune=True)
    return report.kept


async def test_killed_again_and_again_a_mirror_comes_to_be_and_moves_on(
    places: tuple[Place, Place], environment: slate.Environment
) -> None:
    source, target = places
    async with source.open(environment) as db:
        await fill(db, 0, 600)
        await db.checkpoints.create(name="first")
        first = await contents(db)
        await fill(db, 550, 800)
        assert await mirrored(environment, source, target, "first", KILLS) > 0
        assert await shown(environment, target) == first
        await db.checkpoints.create(name="second")
        second = await contents(db)
        assert await mirrored(environment, source, target, "second") > 0
        assert await shown(environment, target) == second
        await db.put(b"the writer", b"was not disturbed")
    for place in places:
        async with environment.open_admin(place.path, metastore=place.metastore) as admin:
            report = await admin.verify()
            assert report.findings == ()
            assert report.rows >= len(first)
    promoted = replace(target, settings={**target.settings, "flush_interval_ms": 1})
    async with promoted.open(environment) as db:
        await db.put(b"mine", b"1")
        assert await contents(db) == {**second, b"mine": b"1"}
