"""A standalone cluster: a master, two workers and a driver, each a process, over S3 with DynamoDB metadata."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import slate_async as slate
from tests.integration.places import make_place
from tests.integration.processes import ChildProcess
from tests.servers.moto import AWS_ENVIRONMENT
from tests.spark.cluster import WORKERS, SparkCluster
from tests.spark.cluster_driver import LOADED, digest

pytestmark = pytest.mark.timeout(600)
LIMIT_S = 400.0
ROWS = 3_000
SETTINGS = {"compactor": False, "sst_bytes": 40_000, "block_bytes": 2_000}


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
    loaded = f"loaded admitted {len(LOADED)}"
    async with ChildProcess(["-m", "tests.spark.cluster_driver", cluster.url, place.path, place.metastore]) as driver:
        await driver.wait_for_line("done", timeout=LIMIT_S)
        assert driver.received == [before, loaded, "compacted 1", after, f"executors {WORKERS}", "done"]
    async with slate.open_admin(place.path, metastore=place.metastore) as admin:
        assert len((await admin.inspect_manifest()).state.runs) == 1
        assert (await admin.verify()).clean
