"""Which batches a reader of a ``definite`` collection finds at a look, and when it lists all shards."""

from __future__ import annotations

from slate_async.collections.core.frontier import Frontier
from slate_async.collections.reader.follow import ShardFollower
from tests.support.collection_bytes import frontier
from tests.unit.collections.reader.conftest import ReadLake, SleepyClock

PATIENCE_MS = 2_000


def followed(lake: ReadLake) -> tuple[ShardFollower, SleepyClock]:
    """A follower, whose clock the test moves."""
    clock = SleepyClock()
    return ShardFollower(lake.reading(clock=clock, shard_patience_ms=PATIENCE_MS)), clock


async def reached(follower: ShardFollower, coverage: int) -> Frontier:
    """Where a look takes ``coverage``."""
    return (await follower.look(frontier(coverage))).coverage


async def test_a_coverage_that_goes_back_to_that_of_a_version_is_taken_on_at_once(lake: ReadLake) -> None:
    follower, _ = followed(lake)
    for lower in (0, 5):
        await lake.put([(b"x", lower, 1)], lower, lower + 5)
        assert await reached(follower, lower) == frontier(lower + 5)
    assert await reached(follower, 5) == frontier(10)
    await lake.put([(b"x", 10, 1)], 10, 20)
    assert await reached(follower, 5) == frontier(20)


async def test_what_was_found_before_is_nothing_new(lake: ReadLake) -> None:
    """Another shard is found after the patience with the followed one, however often that is looked at again."""
    follower, clock = followed(lake)
    for lower in (0, 5):
        await lake.put([(b"x", lower, 1)], lower, lower + 5)
    assert await reached(follower, 0) == frontier(10)
    await lake.put([(b"x", 0, 1)], 0, 20, writer="b")
    for part in (0.4, 0.4, 0.1):
        clock.now += part * PATIENCE_MS / 1000
        assert await reached(follower, 5) == frontier(10)
    clock.now += 0.2 * PATIENCE_MS / 1000
    assert await reached(follower, 5) == frontier(20)
