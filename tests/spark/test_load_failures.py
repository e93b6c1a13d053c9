"""Loads whose driver is killed, or whose commit gets no answer: the database is before or after, never between."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slate_async as slate
from tests.engine import CONTIGUOUS
from tests.integration.places import LOGS, make_place
from tests.integration.processes import ChildProcess
from tests.netproxy import PASS, CutAfter, Fault, Request, WireProxy
from tests.spark.loader import JOB, ROWS, frame
from tests.spark.test_load import collect, contents, jobs, load, objects, small

pytestmark = pytest.mark.timeout(600)
MOMENTS = ("before", "during", "after")
LOADED = [(b"%05d" % number, b"loaded") for number in range(ROWS)]


async def test_a_driver_killed_at_the_commit_leaves_all_or_nothing(
    spark: SparkSession, tmp_path: Path, full: bool, slice_seed: int
) -> None:
    """Each moment in the long form, else one. Then the same load again, by another driver."""
    for moment in MOMENTS if full else [MOMENTS[slice_seed % len(MOMENTS)]]:
        await kill(spark, tmp_path / moment, moment, random.Random(slice_seed).uniform(0, 100))


async def kill(spark: SparkSession, path: Path, moment: str, delay_ms: float) -> None:
    settings = CONTIGUOUS.settings(manifest_poll_interval_ms=20)
    async with slate.open(path, settings=settings) as db:
        async with ChildProcess(["-m", "tests.spark.loader", str(path), moment, str(delay_ms)]) as driver:
            assert await driver.wait(timeout=250) == -9, driver.stderr_tail()
        await db.confirm()
        (job,) = await jobs(path)
        there = [row async for row in db.scan()]
        assert (there in ([], LOADED)) is True
        if moment != "during":
            assert (job.state, len(there)) == (("registered", 0) if moment == "before" else ("admitted", ROWS))
        again = await load(frame(spark), path, job_id=JOB)
        assert (again.state, again.rows, again.seq) == ("admitted", ROWS, 1)
        if job.state == "admitted":
            assert again == job
        assert ([row async for row in db.scan()] == LOADED) is True
    await collect(path)
    assert [one for one in await objects(path) if not one.named] == []
    assert (await contents(path) == LOADED) is True


async def test_a_commit_whose_answer_is_lost_counts_once(
    spark: SparkSession, s3_endpoint: str, aws_environment: dict[str, str]
) -> None:
    """Every version of the manifest that the driver puts is stored, and its connection cut before the answer."""
    spark.sparkContext.environment.update(aws_environment)  # of its tasks
    place = await make_place("s3", LOGS[0], None, s3_endpoint, manifest_poll_interval_ms=50)
    cut: set[str] = set()

    def lose(request: Request) -> Fault:
        put = request.method == "PUT" and request.conditional and "/db/manifest/" in request.path
        if not put or request.path in cut:
            return PASS
        cut.add(request.path)
        return CutAfter()

    async with place.open() as db, WireProxy(s3_endpoint, lose) as proxy:
        through = place.through(s3_endpoint, proxy.url)
        info = await load(small(spark, [("a", "1"), ("b", "2")]), through.path, job_id=JOB)
        assert (info.state, info.rows, info.seq) == ("admitted", 2, 1)
        assert len(cut) >= 2  # it was registered, and committed
        assert [row async for row in db.scan()] == [(b"a", b"1"), (b"b", b"2")]
        async with slate.open_admin(place.path) as admin:
            assert [job.state for job in await admin.list_ingests()] == ["admitted"]
            assert (await admin.verify()).findings == ()
