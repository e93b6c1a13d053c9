"""Loads whose driver is killed, or whose commit gets no answer: the database is before or after, never between."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slate_async as slate
from slate_async.runtime.system import SystemClock
from tests.integration.places import LOGS, Place, make_place
from tests.integration.processes import ChildProcess
from tests.netproxy import PASS, CutAfter, Delay, Fault, Request, WireProxy
from tests.slices import sample
from tests.spark.loader import JOB, ROWS, frame
from tests.spark.test_load import collect, contents, jobs, load, objects, small

pytestmark = pytest.mark.timeout(600)
HELD_S = 3_600.0
LIMIT_S = 250.0
LATER_MS = 120_000
COMMITS: Mapping[str, Fault] = {
    "before": PASS,
    "on its way": Delay(before=HELD_S),
    "answer on its way": Delay(after=HELD_S),
    "after": PASS,
}
"""When the driver dies, and what the request meets that puts the committed manifest. The server never sees the one on
its way, and has carried out the one whose answer is."""
OLD = [(b"00007", b"old"), (b"99999", b"old")]
LOADED = [(b"%05d" % number, b"loaded") for number in range(ROWS)]


def is_commit(request: Request) -> bool:
    return request.method == "PUT" and request.conditional and "/db/manifest/" in request.path


@pytest.mark.parametrize("replace", [False, True], ids=["adds", "replaces"])
async def test_a_driver_killed_at_the_commit_leaves_all_or_nothing(
    spark: SparkSession, s3_endpoint: str, aws_environment: dict[str, str], full: bool, replace: bool
) -> None:
    """Each step in the long form, else one, of one form of load. Then the same load again, by another driver."""
    if not full and replace not in sample([False, True], 1, "load"):
        pytest.skip("runs with --full, and for other commits")
    spark.sparkContext.environment.update(aws_environment)  # of its tasks
    after = LOADED if replace else [*LOADED, OLD[1]]
    for moment in COMMITS if full else sample(list(COMMITS), 1, f"commit {replace}"):
        place = await make_place("s3", LOGS[0], None, s3_endpoint, manifest_poll_interval_ms=50)
        async with place.open() as db:
            for key, value in OLD:
                await db.put(key, value)
            await kill(place, s3_endpoint, moment, *(["replace"] if replace else []))
            await db.confirm()
            before = (await jobs(place.path))[0]
            there = [row async for row in db.scan()]
            committed = moment in ("answer on its way", "after")
            assert before.state == ("applied" if committed else "registered")
            assert (there == (after if committed else OLD)) is True
            again = await load(frame(spark), place.path, job_id=JOB, replace=replace)
            assert (again.state, again.rows, again.deletes, again.seq) == ("applied", ROWS, replace, 3)
            if committed:
                assert again == before
            assert ([row async for row in db.scan()] == after) is True
        await collect(place.path)
        assert [listed for listed in await objects(place.path) if not listed.named] == []
        assert (await contents(place.path) == after) is True


async def test_what_a_killed_driver_committed_without_a_name_is_not_applied_later(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its commit and its application. Two minutes later, by their clocks, comes a writer; and, to a copy, an
    exclusive overwrite."""
    path, copy = str(tmp_path / "db"), str(tmp_path / "copy")
    async with slate.open(path) as db:
        for key, value in OLD:
            await db.put(key, value)
    driving = ChildProcess(["-m", "tests.spark.loader", path, "replace", "unnamed"])
    async with driving as driver, asyncio.timeout(LIMIT_S):
        await driver.wait_for_line("committing", timeout=LIMIT_S)
        await driver.send("go on")
        await until_state(path, "pending")
        os.kill(driver.pid, signal.SIGKILL)
        assert await driver.wait(timeout=LIMIT_S) == -signal.SIGKILL
    shutil.copytree(path, copy)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: time.time_ns() // 1_000_000 + LATER_MS)
    assert (await load(small(spark, [("a", "1")]), copy, replace=True, mode="exclusive")).state == "applied"
    assert await contents(copy) == [(b"a", b"1")]
    assert [job.state for job in await jobs(copy)] == ["applied", "expired"]
    async with slate.open(path) as db:
        await db.put(b"later", b"1")
        await db.confirm()
        assert [row async for row in db.scan()] == [*OLD, (b"later", b"1")]
    assert [(job.state, job.rows) for job in await jobs(path)] == [("expired", 0)]
    await collect(path)
    assert [stored for stored in await objects(path) if not stored.named] == []


async def test_what_a_killed_driver_saved_is_not_applied_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commit waits in a process of its own, which ends with the driver: nobody renews the job any more."""
    path = str(tmp_path / "db")
    async with slate.open(path) as db:
        for key, value in OLD:
            await db.put(key, value)
    driving = ChildProcess(["-m", "tests.spark.loader", path, "save"])
    async with driving as driver, asyncio.timeout(LIMIT_S):
        await until(path, lambda job: job is not None and job.state == "pending")
        os.kill(driver.pid, signal.SIGKILL)
        assert await driver.wait(timeout=LIMIT_S) == -signal.SIGKILL
        await until(path, lambda job: job is not None and (job.expire_ms or 0) < time.time_ns() // 1_000_000)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: time.time_ns() // 1_000_000 + LATER_MS)
    async with slate.open(path) as db:
        await db.put(b"later", b"1")
        await db.confirm()
        assert [row async for row in db.scan()] == [*OLD, (b"later", b"1")]
    assert [(job.state, job.rows) for job in await jobs(path)] == [("expired", 0)]


async def until_state(path: str, state: str) -> None:
    await until(path, lambda job: job is not None and job.state == state)


async def until(path: str, seen: Callable[[slate.IngestInfo | None], bool]) -> None:
    """Until the newest job is seen so, if there is one."""
    while True:
        if seen(next(iter(await jobs(path)), None)):
            return
        await asyncio.sleep(0.02)


async def kill(place: Place, endpoint: str, moment: str, *arguments: str) -> None:
    """Run the driver until that step of its commit, and kill it. Returns when what it committed is applied."""
    put = asyncio.Event()

    def hold(request: Request) -> Fault:
        if not is_commit(request):
            return PASS
        put.set()
        return COMMITS[moment]

    async with WireProxy(endpoint) as proxy:
        path = place.through(endpoint, proxy.url).path
        async with ChildProcess(["-m", "tests.spark.loader", path, *arguments]) as driver, asyncio.timeout(LIMIT_S):
            await driver.wait_for_line("committing", timeout=LIMIT_S)
            proxy.choose = hold
            if moment != "before":
                await driver.send("go on")
                await put.wait()
            if moment == "answer on its way":
                await until_state(place.path, "applied")
            if moment == "after":
                await driver.wait_for_line("committed", timeout=LIMIT_S)
            os.kill(driver.pid, signal.SIGKILL)
            assert await driver.wait(timeout=LIMIT_S) == -signal.SIGKILL


async def test_a_commit_whose_answer_is_lost_counts_once(
    spark: SparkSession, s3_endpoint: str, aws_environment: dict[str, str]
) -> None:
    """Every version of the manifest that the driver puts is stored, and its connection cut before the answer."""
    spark.sparkContext.environment.update(aws_environment)  # of its tasks
    place = await make_place("s3", LOGS[0], None, s3_endpoint, manifest_poll_interval_ms=50)
    cut: set[str] = set()

    def lose(request: Request) -> Fault:
        if not is_commit(request) or request.path in cut:
            return PASS
        cut.add(request.path)
        return CutAfter()

    async with place.open() as db, WireProxy(s3_endpoint, lose) as proxy:
        through = place.through(s3_endpoint, proxy.url)
        info = await load(small(spark, [("a", "1"), ("b", "2")]), through.path, job_id=JOB)
        assert (info.state, info.rows, info.seq) == ("applied", 2, 1)
        assert len(cut) >= 2  # it was registered, and committed
        assert [row async for row in db.scan()] == [(b"a", b"1"), (b"b", b"2")]
        async with slate.open_admin(place.path) as admin:
            assert [job.state for job in await admin.ingests.list()] == ["applied"]
            assert (await admin.verify()).findings == ()
