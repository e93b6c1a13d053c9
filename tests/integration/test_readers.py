"""Reader processes beside a writer that is killed and taken over, compacted and collected all the while."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import slate_async as slate
from tests.integration import counting
from tests.integration.places import LOGS, Place, make_place
from tests.integration.processes import ChildProcess

SCRIPT = "tests/integration/counting.py"
SMALL = {
    "l0_sst_bytes": 100_000,
    "block_bytes": 1_000,
    "block_cache_bytes": 0,
    "reader_memtable_bytes": 300_000,
    "l0_compact_ssts": 2,
    "manifest_poll_interval_ms": 200,
    "checkpoint_lifetime_ms": 8_000,
    "gc_min_age_ms": 1_000,
    "gc_clock_skew_ms": 0,
    "gc_interval_ms": 1_000,
}
WRITERS = 2
STATES = 1
"""So many different states a follower sees beside each writer, before that is killed."""
SLICE = [("local", LOGS[0]), ("local", LOGS[3]), ("s3+dynamodb", LOGS[2])]
PLACES = [
    pytest.param(store, log, marks=() if (store, log) in SLICE else pytest.mark.slow)
    for store in ("local", "s3+dynamodb")
    for log in LOGS
]


def child(place: Place, role: str, *more: str) -> ChildProcess:
    return ChildProcess([SCRIPT, role, *place.arguments(), *more])


def states(reader: ChildProcess) -> list[int]:
    """What it saw, in order: only states there were, and never back."""
    for line in reader.received:
        assert line.startswith("saw "), f"{line}\n{reader.stderr_tail()}"
    seen = [int(line.split()[1]) for line in reader.received]
    assert seen == sorted(seen)
    return seen


async def wait_until_seen(reader: ChildProcess, count: int) -> None:
    await reader.wait_for_line(lambda line: line.startswith("failed") or int(line.split()[1]) >= count, timeout=60)
    states(reader)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("store", "log"), PLACES, ids=str)
async def test_readers_see_states_that_were_one_after_another(
    store: str, log: tuple[str, bool], tmp_path: Path, s3_endpoint: str, aws_environment: dict[str, str]
) -> None:
    place = await make_place(store, log, tmp_path, s3_endpoint, **SMALL)
    async with AsyncExitStack() as stack:
        acknowledged = 0
        readers: list[ChildProcess] = []
        for _ in range(WRITERS):
            async with child(place, "write") as writer:
                opened = await writer.wait_for_line("open")
                assert int(opened.split()[1]) >= acknowledged
                if not readers:
                    await writer.wait_for_line("wrote")
                    settings = slate.Settings(**place.settings)
                    await stack.enter_async_context(
                        slate.open_gc(place.path, metastore=place.metastore, settings=settings)
                    )
                    for role in (["follow"], ["follow"], ["follow", "--no-pin"], ["scan"]):
                        readers.append(await stack.enter_async_context(child(place, *role)))
                for reader in readers[:3]:
                    for _ in range(STATES):
                        written = int(writer.received[-1].split()[1])
                        await wait_until_seen(reader, written)
                        await writer.wait_for_line(lambda line, n=written: int(line.split()[1]) > n)  # type: ignore[misc]
                await writer.kill()
                acknowledged = int(writer.received[-1].split()[1])
        for reader in readers:
            await wait_until_seen(reader, acknowledged)
            await reader.kill()
            assert len(set(states(reader))) > 1
        async with slate.open_reader(
            place.path, metastore=place.metastore, settings=slate.Settings(**place.settings)
        ) as last:
            assert counting.count_of({key: value async for key, value in last.scan()}) >= acknowledged
