"""A process that consumes the change feed is killed again and again, while the database is written by processes that
are killed, compacted and collected: nothing is lost, and nothing comes again that was acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

import slate_async as slate
from tests.integration.consumer import SUBSCRIPTION
from tests.integration.counting import COUNT, DELETE_EVERY, key_of
from tests.integration.places import LOGS, make_place
from tests.integration.processes import ChildProcess

SMALL = {
    "l0_sst_bytes": 50_000,
    "block_bytes": 1_000,
    "l0_compact_ssts": 2,
    "manifest_poll_interval_ms": 100,
    "checkpoint_lifetime_ms": 2_000,
    "gc_min_age_ms": 0,
    "version_keep_ms": 0,
    "gc_clock_skew_ms": 0,
    "gc_interval_ms": 300,
}
LIVES = 3
PLACES = [pytest.param(log, marks=() if log in (LOGS[0], LOGS[3]) else pytest.mark.slow) for log in LOGS]


def row(seq: int) -> tuple[str, str, str]:
    """What `counting.py` wrote as row ``seq``: two in each batch."""
    number = (seq + 1) // 2
    if seq % 2 == 0:
        return "put", COUNT.decode(), str(number)
    deleted = number % DELETE_EVERY == 0
    return "delete" if deleted else "put", key_of(number).decode(), "-" if deleted else str(number)


class Received:
    """What came of one consumer after another."""

    def __init__(self) -> None:
        self.last = self.acknowledged = 0

    def take(self, lines: list[str]) -> None:
        """All lines of one life."""
        assert lines[0].startswith("begin ")
        at = int(lines[0].split()[1])
        assert self.acknowledged <= at <= self.last
        for line in lines[1:]:
            said = line.split()
            if said[0] == "acknowledged":
                self.acknowledged = int(said[1])
                continue
            assert int(said[1]) == at + 1
            at += 1
            assert tuple(said[2:]) == row(at)
        self.last = max(self.last, at)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("log", PLACES, ids=str)
async def test_a_killed_consumer_goes_on_where_it_acknowledged(log: tuple[str, bool], tmp_path: Path) -> None:
    place = await make_place("local", log, tmp_path, None, **SMALL)
    received = Received()
    settings = slate.Settings(**place.settings)
    async with slate.open(place.path, settings=settings) as db, db.changes(subscription=SUBSCRIPTION):
        pass
    async with slate.open_gc(place.path, settings=settings):
        for _ in range(LIVES):
            async with ChildProcess(["tests/integration/counting.py", "write", *place.arguments()]) as writer:
                await writer.wait_for_line("open")
                async with ChildProcess(["tests/integration/consumer.py", *place.arguments()]) as consumer:
                    await consumer.wait_for_line("acknowledged", timeout=60)
                    await consumer.wait_for_line("row", start=len(consumer.received), timeout=60)
                    await consumer.kill()
                received.take(consumer.received)
                await writer.kill()
        async with slate.open(place.path, settings=settings) as db:
            await db.compact(full=True)
            count = int(await db.get(COUNT) or b"0")
            async with db.changes(subscription=SUBSCRIPTION, follow=False) as feed:
                begin = feed.seq
                rows = [
                    f"row {update.seq} {update.op} {update.key.decode()} {said(update.value)}" async for update in feed
                ]
            received.take([f"begin {begin}", *rows])
        assert received.last == 2 * count


def said(value: bytes | None) -> str:
    return "-" if value is None else value.partition(b".")[0].decode()
