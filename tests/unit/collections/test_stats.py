"""`slate_async.collections.stats`: what handles count."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.area import Area
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.core.frontier import DONE
from slate_async.collections.open import open_collections
from slate_async.collections.stats import area_metrics
from slate_async.errors import UnavailableError
from slate_async.runtime.supervisor import Supervisor
from tests.engine import StoreInHand
from tests.support.collection_bytes import frontier
from tests.unit.collections.lake import Lake, fast_runtime


async def test_handles_count_what_they_did() -> None:
    async with open_collections("memory://stats/live", controller=False, runtime=fast_runtime()) as lake:
        reader, orders = await lake.create("orders"), lake.collection("orders")
        async with orders.writer("relay-a") as writer, orders.controller(background=False) as controller:
            await writer.append([(b"a", 0, 1), (b"b", 1, 1)], upper=2)
            async with writer.batch(upper=4) as batch:
                await batch.add([(b"c", 2, 1)])
            await writer.append([(b"a", 0, 1)], lower=0, upper=2)  # is in
            with pytest.raises(UpperMismatchError):
                await writer.append([], lower=9, upper=10)
            written = writer.metrics()
            assert {name: written[f"collections.append.{name}"] for name in ("calls", "rows", "mismatches")} == {
                "calls": 4,
                "rows": 3,
                "mismatches": 1,
            }
            assert written["collections.append.bytes"] > 50
            listener = reader.listen(as_of=0)
            rows = (await anext(listener)).updates.num_rows
            async with await reader.snapshot(1):
                read = reader.metrics()
            assert (read["collections.listen.deltas"], read["collections.read.snapshots"]) == (1, 1)
            assert read["collections.listen.rows"] == rows
            assert read["collections.listen.lag_times"] == 0
            spent = read["collections.listen.seconds"]
            assert spent > 0
            pending = sum(shard.nbytes for shard in (await orders.inspect()).shards)
            await controller.settle()
            assert controller.metrics()["collections.holds"] == 1
            waiting = asyncio.create_task(anext(listener))
            await asyncio.sleep(0.05)  # which is no time in which a delta is read
            waiting.cancel()
            await asyncio.wait([waiting])
            assert reader.metrics()["collections.listen.seconds"] == spent
            kept = controller.metrics()
            assert (kept["collections.controller.epoch"], kept["collections.controller.absorbed"]) == (1, 2)
            assert kept["collections.spine.batches"] == 1
            assert kept["collections.since_lag"] == 4
            async with orders.reader() as late:
                behind = late.listen(as_of=0)
                assert late.metrics()["collections.listen.lag_times"] == 3
                await anext(behind)
                assert late.metrics()["collections.listen.lag_times"] == 0
            assert lake.metrics()["collections.handles"] == 3
            assert lake.metrics()["store.requests.put_if"] > 4
            await reader.expire()
            await controller.settle()
            kept = controller.metrics()
            assert (kept["collections.holds"], kept["collections.gc.bytes"]) == (0, pending)


async def test_repeated_puts_are_counted(store: StoreInHand) -> None:
    supervisor = Supervisor("test", lambda cause: None)
    lake = Lake(store, supervisor)
    writer = await lake.writer(Appends.DEFINITE)
    failures = [UnavailableError("lost", outcome="unknown"), UnavailableError("busy", outcome="not_applied")]
    lake.store.fail_before = lambda key: failures.pop() if failures else None
    await writer.append([], upper=2)
    assert writer.metrics()["collections.append.retries"] == 2
    assert writer.metrics()["collections.append.seconds"] > 0
    await writer.close()
    await supervisor.close()


def test_the_lag_of_since_is_counted_in_u64_times_only() -> None:
    area = replace(Area.first(frontier(0)), upper=frontier(9))
    assert area_metrics(area)["collections.since_lag"] == 9
    assert area_metrics(replace(area, since=frontier(12)))["collections.since_lag"] == 0
    assert area_metrics(replace(area, upper=DONE))["collections.since_lag"] == 0
    assert area_metrics(replace(Area.first(frontier((0, 0))), upper=frontier((3, 3))))["collections.since_lag"] == 0
