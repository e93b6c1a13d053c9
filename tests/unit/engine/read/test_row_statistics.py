"""`row_statistics`: counts of what is stored and of what lives, against a model of every version."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

import slate_async as slate
from slate_async.engine.read.row_statistics import TTL_BUCKETS, RowStatistics, histogram
from tests.engine import KINDS, START_MS, Kind, ManualClock, memory_store, open_db

KEYS = [b"%03d" % number for number in range(300)]


class Model:
    """Every version that was written: (value, or None for a delete; expiry in seconds, or None)."""

    def __init__(self) -> None:
        self.versions: dict[bytes, list[tuple[bytes | None, float | None]]] = {}

    def fill(self, rng: random.Random, batch: slate.WriteBatch, deletes: float) -> None:
        for key in rng.sample(KEYS, 100):
            if rng.random() < deletes:
                batch.delete(key)
                written: tuple[bytes | None, float | None] = (None, None)
            else:
                written = rng.randbytes(rng.randint(0, 40)), rng.choice((None, 5.0, 100.0))
                assert written[0] is not None
                batch.put(key, written[0], ttl=written[1])
            self.versions.setdefault(key, []).append(written)

    def statistics(self, now_s: float, start: bytes = b"", end: bytes = b"\xff") -> RowStatistics:
        inside = {key: versions for key, versions in self.versions.items() if start <= key < end}
        every = [version for versions in inside.values() for version in versions]
        newest = {key: versions[-1] for key, versions in inside.items()}
        live = {
            key: (value, ttl)
            for key, (value, ttl) in newest.items()
            if value is not None and (ttl is None or ttl > now_s)
        }
        puts = sum(value is not None for value, _ in newest.values())
        values = [value for value, _ in live.values() if value is not None]
        ttls = [ttl for _, ttl in live.values() if ttl is not None]
        return RowStatistics(
            versions=len(every),
            keys=len(inside),
            tombstones=sum(value is None for value, _ in every),
            live=len(live),
            expiring=len(ttls),
            expired=puts - len(live),
            key_bytes=3 * len(live),
            value_bytes=sum(map(len, values)),
            key_sizes=(0, 0, len(live), *[0] * 14),
            value_sizes=_buckets([len(value) for value in values], 32),
            ttls=_buckets([int(ttl) for ttl in ttls], TTL_BUCKETS),
        )


def _buckets(numbers: list[int], buckets: int) -> tuple[int, ...]:
    found = Counter(number.bit_length() for number in numbers)
    return tuple(found[bucket] for bucket in range(buckets))


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_versions_of_memory_log_l0_and_runs_are_counted_once(kind: Kind) -> None:
    rng, model, clock = random.Random(3), Model(), ManualClock()
    async with open_db(memory_store(), kind, clock=clock, block_bytes=1_000) as db:
        for number in range(5):
            batch = slate.WriteBatch()
            model.fill(rng, batch, deletes=0.2 if number else 0)
            await db.write(batch)
            if number < 4:
                await db.flush(l0=True)
            if number == 0:
                await db.compact()  # of puts of different keys, so nothing is dropped
        assert await db.row_statistics() == model.statistics(0)
        assert await db.row_statistics(b"100", b"200") == model.statistics(0, b"100", b"200")
        clock.wall_ms = START_MS + 10_000
        found = await db.row_statistics()
        assert found == model.statistics(10)
        assert found.expired > 0
        assert found.tombstone_share == found.tombstones / found.versions


async def test_a_snapshot_counts_nothing_newer() -> None:
    async with open_db(memory_store()) as db:
        await db.put(b"a", b"1")
        async with db.snapshot() as snapshot:
            await db.put(b"a", b"2")
            await db.delete(b"b")
            assert (await snapshot.row_statistics()).versions == 1
            assert (await db.row_statistics()).versions == 2  # in memory the newest of each key counts
            assert (await db.row_statistics(b"x")).tombstone_share == 0


def test_buckets_end_where_they_are_said_to() -> None:
    numbers = np.array([-5, 0, 1, 2, 3, 4, 7, 8, 2**40])
    assert histogram(numbers, 5).tolist() == [2, 1, 2, 2, 2]
