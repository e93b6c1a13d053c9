"""Merging a key range: which rows stay, exact counts, how SSTs are cut, and what failures leave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from uuid import UUID

import pytest
from msgspec import structs

from slate_async.codec.columns import NO_EXPIRY
from slate_async.codec.header import decode_header
from slate_async.engine.compaction import rounds
from slate_async.engine.compaction.executor import MergeCounts, RangeTask
from slate_async.engine.compaction.local_executor import LocalExecutor
from slate_async.errors import CorruptionError, InternalError, UnavailableError
from slate_async.storage.sst.names import sst_key
from slate_async.types import DELETE, MERGE, PUT
from tests.engine import StoreInHand, memory_store, runtime
from tests.read_model import Version, newest_first, tombstone, visible
from tests.support.merge_harness import DATABASE, EPOCHS, MergeHarness


@pytest.fixture
def harness() -> MergeHarness:
    return MergeHarness(memory_store())


def model(sources: Sequence[Sequence[Version]], task: RangeTask) -> tuple[list[Version], MergeCounts]:
    """What must stay of ``sources``, and the counts, row by row."""
    kept: list[Version] = []
    shadowed = tombstones = expired = buried = 0
    inside = [row for rows in sources for row in rows if (task.start or b"") <= row.key]
    inside = [row for row in inside if task.end is None or row.key < task.end]
    for _, found in groupby(newest_first(inside), key=lambda row: row.key):
        history = list(found)
        kept += [row for row in history if row.seq > task.keep_above]
        old = [row for row in history if row.seq <= task.keep_above]
        shadowed += max(0, len(old) - 1)
        for base in old[:1]:
            dead = base.kind == PUT and base.expire_ms <= task.expired_at_ms
            if task.bottom:
                tombstones += base.kind == DELETE
                expired += dead
                kept += [] if dead or base.kind == DELETE else [base]
            else:
                buried += dead
                kept.append(base._replace(value=b"", kind=DELETE, expire_ms=NO_EXPIRY) if dead else base)
    counts = MergeCounts(
        rows_in=len(inside),
        rows_out=len(kept),
        bytes_in=sum(len(row.key) + len(row.value) for row in inside),
        bytes_out=sum(len(row.key) + len(row.value) for row in kept),
        shadowed=shadowed,
        tombstones=tombstones,
        expired=expired,
        buried=buried,
    )
    return kept, counts


def random_sources(rng: random.Random) -> list[list[Version]]:
    """Rows spread over sources in age order, newest first; few keys, so that they have many versions."""
    rows = []
    for seq in range(1, rng.randrange(2, 200)):
        kind = rng.choice([PUT, PUT, DELETE])
        expire = rng.choice([NO_EXPIRY, 50, 150]) if kind == PUT else NO_EXPIRY
        value = b"" if kind == DELETE else rng.randbytes(rng.choice([0, 3, 30]))
        rows.append(Version(b"%03d" % rng.randrange(rng.choice([2, 60])), value, seq, kind, expire, seq))
    cuts = sorted(rng.randrange(len(rows) + 1) for _ in range(rng.randrange(4)))
    return [rows[low:high] for low, high in pairwise([0, *cuts, len(rows)]) if low < high][::-1]


@pytest.mark.parametrize("seed", range(60))
async def test_what_stays(seed: int, harness: MergeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    if rng.random() < 0.3:  # rows too large to be joined, so that keys come in pieces
        monkeypatch.setattr(rounds, "MAX_JOINED_BYTES", 100)
    sources = random_sources(rng)
    highest = max(row.seq for rows in sources for row in rows)
    task = await harness.task(
        *sources,
        keep_above=rng.choice([0, highest // 2, highest]),
        expired_at_ms=rng.choice([0, 100]),
        bottom=rng.random() < 0.5,
        sst_bytes=rng.choice([1, 400, 1 << 20]),
        start=rng.choice([None, b"010"]),
        end=rng.choice([None, b"030"]),
        compression=rng.choice(["none", "zstd"]),
    )
    wanted, counts = model(sources, task)

    result = await harness.run(task)

    found = await harness.rows(result)
    assert found == wanted
    assert replace(result.counts, stored_out=0) == counts
    assert result.counts.stored_out == sum(sst.size for sst in result.ssts)
    for before, after in pairwise(result.ssts):
        assert before.last_key < after.first_key, "a key is in two SSTs"
    older = [] if task.bottom else [Version(row.key, b"old", 0) for row in wanted]
    inputs = [row for rows in sources for row in rows if any(row.key == expected.key for expected in (*wanted, *older))]
    for max_seq in (task.keep_above, highest):  # every remaining reader sees the same
        for now_ms in (task.expired_at_ms, 10**6):
            assert visible([*found, *older], max_seq, now_ms) == visible([*inputs, *older], max_seq, now_ms)


async def test_ranges_make_what_the_whole_makes(harness: MergeHarness) -> None:
    sources = random_sources(random.Random(3))
    task = await harness.task(*sources, bottom=False)
    edges = [None, b"010", b"011", b"040", None]
    parts = [await harness.run(replace(task, start=start, end=end)) for start, end in pairwise(edges)]
    whole = await harness.run(task)
    assert [row for part in parts for row in await harness.rows(part)] == await harness.rows(whole)


async def test_the_output_says_whose_it_is(harness: MergeHarness) -> None:
    result = await harness.run(await harness.task([Version(b"a", b"", 3)], [Version(b"b", b"", 2)]))
    [sst] = result.ssts
    assert sst.writer_epoch == max(EPOCHS[:2])
    assert sst.location.startswith(f"sst/{9:020}.")
    header = decode_header((await harness.store.get(sst.location)).data, object_name=sst.location)
    assert (header.database_id, header.object_id) == (DATABASE, sst.object_id)
    assert (header.writer_epoch, header.manifest_version) == (sst.writer_epoch, 9)
    assert (sst.min_seq, sst.max_seq, sst.first_key, sst.last_key) == (2, 3, b"a", b"b")


async def test_nothing_left(harness: MergeHarness) -> None:
    result = await harness.run(await harness.task([tombstone(b"a", 2)], [Version(b"a", b"x", 1)]))
    assert result.ssts == ()
    assert (result.counts.shadowed, result.counts.tombstones, result.counts.rows_out) == (1, 1, 0)


async def test_the_same_bytes_for_the_same_ids() -> None:
    sources = random_sources(random.Random(5))
    made: list[dict[str, bytes]] = []
    for _ in range(2):
        harness = MergeHarness(memory_store())
        task = await harness.task(*sources, sst_bytes=500, compression="zstd")
        ids = Counted()
        await LocalExecutor(harness.store, harness.open_sst, replace(runtime(), ids=ids)).run(task)
        made.append({key: (await harness.store.get(key)).data for key in map(ids.key, range(1, ids.drawn))})
    assert len(made[0]) > 1
    assert made[0] == made[1]


class Counted:
    """Ids in order."""

    def __init__(self) -> None:
        self.drawn = 0

    def ulid(self, now_ms: int) -> bytes:
        self.drawn += 1
        return self.drawn.to_bytes(16, "big")

    def key(self, number: int) -> str:
        return sst_key(9, number.to_bytes(16, "big"))

    def uuid(self) -> UUID:
        raise AssertionError("not needed")

    def token(self) -> str:
        raise AssertionError("not needed")


async def test_a_run_is_one_source(harness: MergeHarness) -> None:
    run = (await harness.sst([Version(b"a", b"1", 1)]), await harness.sst([Version(b"c", b"2", 2)]))
    task = replace(await harness.task([Version(b"b", b"3", 3)]), sources=())
    newer = await harness.sst([Version(b"c", b"4", 4)])
    result = await harness.run(replace(task, sources=((newer,), run)))
    assert [row.value for row in await harness.rows(result)] == [b"1", b"4"]


async def test_the_number_of_the_manifest_counts(harness: MergeHarness) -> None:
    rows = [Version(bytes([key]), b"x", 0) for key in b"bc"]
    sst = structs.replace(await harness.sst(rows), global_seq=40)
    task = replace(await harness.task([Version(b"b", b"newer", 41)]), bottom=False)
    result = await harness.run(replace(task, sources=(*task.sources, (sst,)), keep_above=40))
    assert [(row.key, row.seq) for row in await harness.rows(result)] == [(b"b", 41), (b"b", 40), (b"c", 40)]


async def test_merge_operands_are_refused(harness: MergeHarness) -> None:
    task = await harness.task([Version(b"a", b"x", 1, MERGE)])
    with pytest.raises(InternalError, match="no merge operator"):
        await harness.run(task)


async def test_a_hot_key_is_thinned_before_the_merge(harness: MergeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = rounds.Rounds.step

    def step(self: rounds.Rounds) -> rounds.Round:
        found = real(self)
        sizes.append(len(found.rows))
        return found

    monkeypatch.setattr(rounds.Rounds, "step", step)
    sources = [[Version(b"hot", b"v" * 20, seq) for seq in range(low, low + 500)] for low in (501, 1)]
    result = await harness.run(await harness.task(*sources))
    assert (result.counts.rows_in, result.counts.shadowed, result.counts.rows_out) == (1000, 999, 1)
    assert max(sizes) < 20


async def test_damage_is_found(harness: MergeHarness) -> None:
    task = await harness.task([Version(b"%d" % key, b"x" * 50, 1 + key) for key in range(2000)])
    [[sst]] = task.sources
    data = bytearray((await harness.store.get(sst.location)).data)
    data[1000] ^= 1
    await harness.store.put(sst.location, bytes(data))
    with pytest.raises(CorruptionError, match="checksum"):
        await harness.run(task)


async def test_a_failed_upload_ends_the_run() -> None:
    store = StoreInHand(memory_store(), watch=sst_key(9, bytes(16))[:24])
    harness = MergeHarness(store)
    task = await harness.task([Version(b"%03d" % key, b"x" * 50, 1 + key) for key in range(100)], sst_bytes=1000)
    store.fail_before = lambda key: UnavailableError("the store is down", outcome="unknown")
    with pytest.raises(UnavailableError):
        await harness.run(task)
    assert len(asyncio.all_tasks()) == 1


async def test_a_cancelled_run_leaves_no_task(harness: MergeHarness) -> None:
    task = await harness.task([Version(b"%03d" % key, b"x" * 50, 1 + key) for key in range(100)], sst_bytes=1000)
    for turns in range(40):
        running = asyncio.create_task(harness.run(task))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len(asyncio.all_tasks()) == 1, f"after {turns} turns"


async def test_progress_is_reported(harness: MergeHarness) -> None:
    told: list[MergeCounts] = []
    task = await harness.task([Version(b"%03d" % key, b"x", 1 + key) for key in range(100)])
    result = await LocalExecutor(harness.store, harness.open_sst, runtime()).run(task, told.append)
    assert told
    assert told[-1].rows_in == result.counts.rows_in == 100
