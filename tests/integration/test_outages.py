"""A store that is away for seconds, or for minutes, under load: nothing acknowledged is lost, and requests go on by
themselves. Most of the time passes waiting, so these run with ``--full``; see `test_wire_faults` for the short form."""

from __future__ import annotations

import asyncio
import time

import pytest

import slate_async as slate
from tests.engine import until
from tests.integration.places import make_place
from tests.netproxy import PASS, CutBefore, Delay, Fault, Request, WireProxy

TASKS = 8
PAUSE_S = 0.05


class Load:
    """Requests of a service: each writes a key of its own, and reads one."""

    def __init__(self, db: slate.Db) -> None:
        self.db = db
        self.outcomes: dict[bytes, str] = {}
        self.newest_s = 0.0
        self.over = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for task in range(TASKS):
                group.create_task(self._requests(task))

    async def _requests(self, task: int) -> None:
        number = 0
        while not self.over:
            number += 1
            key = b"%d/%06d" % (task, number)
            try:
                await self.db.put(key, key)
            except slate.UnavailableError as error:
                self.outcomes[key] = str(error.outcome)
            else:
                self.outcomes[key] = "acknowledged"
                self.newest_s = time.monotonic()
                assert await self.db.get(key) == key
            await asyncio.sleep(PAUSE_S)

    async def judge(self, db: slate.Db) -> None:
        there = {key async for key, _ in db.scan()}
        for key, outcome in self.outcomes.items():
            assert outcome == "unknown" or (key in there) == (outcome == "acknowledged"), (key, outcome)


@pytest.mark.slow
@pytest.mark.timeout(1_000)
@pytest.mark.parametrize("seconds", [20, 60, 600])
@pytest.mark.parametrize("fault", [CutBefore(reset=True), Delay(before=3_600.0)], ids=["refused", "silent"])
@pytest.mark.parametrize("protocol", ["contiguous", "epoch_prefixed"])
async def test_a_store_that_was_away(
    protocol: str, fault: Fault, seconds: int, s3_endpoint: str, aws_environment: dict[str, str]
) -> None:
    direct = await make_place("s3", (protocol, True), None, s3_endpoint, manifest_poll_interval_ms=1_000)

    def away(request: Request) -> Fault:
        return fault

    async with WireProxy(s3_endpoint) as proxy:
        async with direct.through(s3_endpoint, proxy.url).open() as db:
            load = Load(db)
            running = asyncio.create_task(load.run())
            await until(lambda: len(load.outcomes) > 50, "some writes")
            proxy.choose = away
            began = time.monotonic()
            await until(lambda: db.status().state == "degraded", "the outage to be noticed")
            noticed = time.monotonic() - began
            await asyncio.sleep(seconds - noticed)
            proxy.choose = lambda request: PASS
            back = time.monotonic()
            await until(lambda: load.newest_s > back or running.done(), "a write to be acknowledged", seconds=60)
            print(f"{seconds} s: noticed after {noticed:.2f} s, went on {load.newest_s - back:.2f} s after its return")
            await until(lambda: db.status().state == "open", "the end of the outage", seconds=60)
            if seconds < 30:
                assert set(load.outcomes.values()) == {"acknowledged"}
            else:
                assert set(load.outcomes.values()) >= {"acknowledged", "not_applied"}
            load.over = True
            await running
            await load.judge(db)
    async with direct.open() as successor:
        await load.judge(successor)
