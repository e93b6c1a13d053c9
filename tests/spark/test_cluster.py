"""A standalone cluster: a master, two workers and a driver, each a process: over S3 with DynamoDB metadata, with a
stream whose driver is killed, and with attempts of tasks that overtake others.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import slate_async as slate
from tests.integration.places import Place, make_place
from tests.integration.processes import ChildProcess
from tests.servers.moto import AWS_ENVIRONMENT
from tests.slices import sample, slice_seed
from tests.spark import exactly_once, sink_driver
from tests.spark import speculation_driver as speculation
from tests.spark.cluster import HOSTS, WORKERS, SparkCluster
from tests.spark.cluster_driver import LOADED, digest
from tests.spark.test_load import collect, contents, made, ssts

pytestmark = pytest.mark.timeout(600)
LIMIT_S = 400.0
ROWS = 3_000
SETTINGS = {"auto_compaction": False, "sst_bytes": 40_000, "block_bytes": 2_000}


@pytest.fixture(autouse=True)
def _in_turn(request: pytest.FixtureRequest, full: bool) -> None:
    """One of the tests for each commit, all in the long form."""
    tests = (
        test_reads_loads_and_compactions_run_on_a_cluster,
        test_a_stream_whose_driver_is_killed_comes_in_once,
        test_attempts_that_are_overtaken_leave_only_garbage,
    )
    if not full and request.function not in sample(tests, 1, "cluster"):
        pytest.skip("runs with --full, and for other commits")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """Its executors have the credentials, in their environment; no plan and no option has."""
    running = SparkCluster(AWS_ENVIRONMENT)
    yield running
    running.stop()


async def test_reads_loads_and_compactions_run_on_a_cluster(
    cluster: SparkCluster, s3_endpoint: str, aws_environment: dict[str, str]
) -> None:
    place = await make_place("s3+dynamodb", ("epoch_prefixed", True), None, s3_endpoint, **SETTINGS)
    assert place.metastore is not None
    async with place.open() as db:
        for flush in range(3):
            batch = slate.WriteBatch()
            for number in range(flush * 500, flush * 500 + ROWS - 1_000):
                batch.put(b"%05d" % number, b"%d of flush %d" % (number, flush) * 4)
            await db.write(batch)
            await db.flush(l0=True)
        rows = [row async for row in db.scan()]
    before, after = (f"read {len(found)} {digest(found)}" for found in (rows, [*rows, *LOADED]))
    loaded = f"loaded applied {len(LOADED)}"
    async with ChildProcess(["-m", "tests.spark.cluster_driver", cluster.url, place.path, place.metastore]) as driver:
        await driver.wait_for_line("done", timeout=LIMIT_S)
        assert driver.received == [before, loaded, "compacted 1", after, f"executors {WORKERS}", "done"]
    async with slate.open_admin(place.path, metastore=place.metastore) as admin:
        assert len((await admin.inspect.manifest()).state.runs) == 1
        assert (await admin.verify()).clean


async def write(place: Place, rng: random.Random, batches: int) -> None:
    """Batches of ten changes, a delete among them, of few keys."""
    async with place.open() as db:
        for _ in range(batches):
            batch = slate.WriteBatch()
            for _ in range(9):
                batch.put(b"%03d" % rng.randrange(200), rng.randbytes(100), ttl=rng.choice((None, 3_600.0)))
            batch.delete(b"%03d" % rng.randrange(200))
            await db.write(batch)


async def until_batches_are_in(db: slate.Db, count: int) -> None:
    """Wait until so many micro-batches were let in; each has a sequence number of its own."""
    seen: set[int] = set()
    async with db.changes(from_seq=0) as feed:
        async for change in feed:
            seen.add(change.seq)
            if len(seen) == count:
                return


async def kill_when_in(driver: ChildProcess, db: slate.Db, count: int) -> None:
    """Kill it, its JVM and its processes as soon as so many micro-batches are in. Raises if it ends before."""
    batches, end = (
        asyncio.ensure_future(until_batches_are_in(db, count)),
        asyncio.ensure_future(driver.wait(timeout=LIMIT_S)),
    )
    await asyncio.wait([batches, end], return_when=asyncio.FIRST_COMPLETED, timeout=LIMIT_S)
    await driver.kill()
    in_time = batches.done()
    batches.cancel()
    await asyncio.gather(batches, end, return_exceptions=True)
    assert in_time, driver.stderr_tail()


async def test_a_stream_whose_driver_is_killed_comes_in_once(
    cluster: SparkCluster, s3_endpoint: str, aws_environment: dict[str, str], tmp_path: Path
) -> None:
    """It is killed as soon as a micro-batch is in, which Spark has most likely not heard of, so that it comes again."""
    log, checkpoint, rng = ("epoch_prefixed", True), tmp_path / "checkpoint", random.Random(slice_seed())
    source = await make_place("s3+dynamodb", log, None, s3_endpoint, **SETTINGS)
    target = await make_place("s3+dynamodb", log, None, s3_endpoint)
    assert source.metastore is not None
    assert target.metastore is not None
    command = ["-m", "tests.spark.sink_driver", cluster.url, source.path, source.metastore]
    command += [target.path, target.metastore, str(checkpoint)]
    await write(source, rng, 150)
    async with target.open() as db:
        await exactly_once.keep(target.path, target.metastore)
        async with ChildProcess(command) as driver:
            await kill_when_in(driver, db, 2)
        assert len(exactly_once.offsets(checkpoint)) < 150 * 10 // sink_driver.ROWS, "it was killed too late"
        await db.compact(full=True)
        await write(source, rng, 60)
        async with ChildProcess([*command, "end"]) as driver:
            await driver.wait_for_line("done", timeout=LIMIT_S)
    expected = await exactly_once.streamed(source.path, exactly_once.offsets(checkpoint), source.metastore)
    found = await exactly_once.applied(target.path, target.metastore)
    assert exactly_once.judged(expected, found) is None
    rows = []
    for place in (source, target):
        async with slate.open_reader(place.path, metastore=place.metastore) as reader:
            rows.append([row async for row in reader.scan()])
        async with slate.open_admin(place.path, metastore=place.metastore) as admin:
            assert (await admin.verify()).clean
    assert rows[0] == rows[1]


async def test_attempts_that_are_overtaken_leave_only_garbage(cluster: SparkCluster, tmp_path: Path) -> None:
    """Speculation: of a load that Spark ends, of a load and of a compaction that do their work when all is over."""
    path, notes = tmp_path / "db", tmp_path / "notes"
    await made(path)
    driven = ["-m", "tests.spark.speculation_driver", cluster.url, str(path), str(notes)]
    async with ChildProcess(driven) as driver:
        await driver.wait_for_line("done", timeout=LIMIT_S)
        *loaded, compacted, _ = driver.received
    assert [line.rpartition(" named ")[0] for line in loaded] == [
        f"loaded {job} applied {speculation.ROWS}" for job in ("stalled", "late")
    ]
    for line in loaded:
        *_, named, _, others = line.split()
        assert int(named) >= WORKERS, line
        assert int(others) > 0, line
    assert compacted == "compacted 1"
    for work in speculation.WORKS:
        attempts = [(notes / work / attempt).read_text() for attempt in ("0.0", "0.1")]
        assert sorted(attempts) == sorted(HOSTS)
    rows = speculated_rows()
    assert (await contents(path) == rows) is True
    async with slate.open_admin(path) as admin:
        named_ssts = {f"{sst.location}.obj" for sst in (await admin.inspect.manifest()).state.ssts()}
    there = {str(file.relative_to(path)) for file in ssts(path)}
    assert named_ssts < there
    await collect(path)
    assert {str(file.relative_to(path)) for file in ssts(path)} == named_ssts
    assert (await contents(path) == rows) is True


def speculated_rows() -> list[tuple[bytes, bytes]]:
    """What both loads put, beside what was there before."""
    values = [hashlib.sha512(b"%d" % number).hexdigest().encode() for number in range(speculation.ROWS)]
    loads = [(b"%s%05d" % (job, number), value) for job in (b"stalled", b"late") for number, value in enumerate(values)]
    return sorted([(b"before", b"1"), *loads])
