"""P11 and what a collection costs: rows rewritten, size of a version, requests for each append."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.codec.version import encode_version
from slate_async.collections.core.spine import most_batches
from slate_async.collections.store import acknowledged
from slate_async.collections.store.acknowledged import AcknowledgedBatches
from slate_async.collections.writer.writer import open_writer
from tests.engine import StoreInHand, memory_store, until
from tests.support.collection_bytes import frontier
from tests.unit.collections.controller.counted import CountedStore
from tests.unit.collections.kept import KeptLake
from tests.unit.collections.lake import FastClock


@pytest.fixture
async def store() -> StoreInHand:
    """In memory."""
    return StoreInHand(memory_store(), watch="merged_batches/")


@pytest.mark.parametrize("step", [1, 3, 16])
async def test_rows_are_rewritten_a_few_times_and_a_version_stays_small(lake: KeptLake, step: int) -> None:
    writer = await lake.writer(Appends.DEFINITE, "a")
    controller = await lake.controller()
    ends = 96
    for number in range(ends):
        rows = [(b"%d" % (number * step + row), number, 1) for row in range(step)]
        await writer.append(rows, lower=number, upper=number + 1)
        report = await controller.round()
        assert report.appends == 1
        await controller.merge()
        head, absorbed = await lake.head(), step * (number + 1)
        assert head.rows == absorbed
        assert len(head.batches) <= most_batches(absorbed)
        assert len(encode_version(head)) <= 256 * (2 * math.log2(absorbed) + 8)
    rounds, merges = controller.counts
    assert merges.rows_in <= rounds.rows * 2 * math.log2(rounds.rows)


async def test_a_set_that_stays_small_is_rewritten_less_while_since_keeps_up(lake: KeptLake) -> None:
    """What cancels out is never carried on."""
    writer = await lake.writer(Appends.DEFINITE, "a")
    controller = await lake.controller()
    ends = 200
    for number in range(ends):
        rows = [(b"%d" % (number % 7), number, 1), (b"%d" % ((number - 3) % 7), number, -1)]
        await writer.append(rows, lower=number, upper=number + 1)
        await lake.hold("pin", None, max(number - 1, 0))
        await controller.round()
        await controller.merge()
    rounds, merges = controller.counts
    assert merges.rows_in <= 4 * rounds.rows
    await controller.settle()
    assert (await lake.head()).rows <= 7 * 3


@pytest.mark.parametrize("kept", [1_024, 3])
@pytest.mark.parametrize("appends", list(Appends))
async def test_what_a_writer_of_the_same_process_put_is_taken_in_without_a_read(
    lake: KeptLake, appends: Appends, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledged, "KEPT_BATCHES", kept)
    shared = AcknowledgedBatches()
    counted = CountedStore(lake.store.inner, watch="merged_batches/")
    controller = await lake.controller(appends, store=counted, acknowledged=shared)
    writer = await open_writer(replace(lake.context(appends, "a"), acknowledged=shared), appends)
    lake.opened.append(writer)
    rows = [(b"%03d" % time, time, 1) for time in range(20)]
    for row in rows:
        await writer.append([row], upper=row[1] + 1)
    assert (await controller.round()).appends == len(rows)
    read = [key for key in counted.gets if key.startswith("pending_batches/")]
    assert len(read) == max(len(rows) - kept, 0)
    assert await lake.merged() == rows
    await controller.close()
    assert shared.beyond(frontier(0)) == []


@pytest.mark.parametrize("appends", list(Appends))
async def test_taking_in_costs_few_requests_beside_the_reads_of_what_is_taken_in(
    lake: KeptLake, appends: Appends
) -> None:
    clock, counted = FastClock(), CountedStore(lake.store.inner, watch="merged_batches/")
    await lake.hold("reader", None, 0)
    controller = await lake.controller(appends, background=True, clock=clock, store=counted, gc_interval_ms=600_000)
    writer = await lake.writer(appends, "a")
    ends, began = 200, clock.now
    for lower in range(ends):
        await writer.append([(b"%d" % lower, lower, 1)], lower=lower, upper=lower + 1)
    await until(lambda: controller.counts[0].appends == ends, "all is taken in")
    rounds, merges = controller.counts
    of_merges = 5 * merges.merges  # two inputs, the output, and the commit of two requests
    looks = 3 * ((clock.now - began) / 0.5 + 2)
    assert sum(counted.requests.values()) - of_merges - looks <= rounds.appends + 4 * rounds.batches
