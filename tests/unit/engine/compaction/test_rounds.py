"""Rounds of a merge: all rows, in order, whole keys, and about as many bytes as were asked for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import pytest

from slate_async.codec.columns import Columns
from slate_async.engine.compaction import rounds
from slate_async.engine.compaction.rounds import Round, Rounds
from tests.read_model import Version, columns, newest_first, versions


async def batches_of(rows: Sequence[Version], cuts: Sequence[int]) -> AsyncIterator[Columns]:
    """``rows``, cut; a cut made twice is an empty batch."""
    for low, high in pairwise([0, *sorted(cuts), len(rows)]):
        yield columns(list(rows[low:high]))


async def collect(merged: Rounds) -> list[Round]:
    found = []
    while await merged.fill():
        found.append(merged.step())
    await merged.aclose()
    return found


def ordered(found: Round) -> list[Version]:
    rows = versions(found.rows)
    return rows if found.order is None else [rows[at] for at in found.order]


@pytest.mark.parametrize("seed", range(80))
async def test_all_rows_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    splits = rng.random() < 0.2  # rows too large to be joined, so that keys come in pieces
    if splits:
        monkeypatch.setattr(rounds, "MAX_JOINED_BYTES", 200)
    keys = rng.choice([1, 3, 50])
    rows = [Version(b"%d" % rng.randrange(keys), b"v" * rng.randrange(9), seq) for seq in range(1, 300)]
    overlap = rng.random() < 0.5  # sources need not follow one another in age
    sources: list[list[Version]] = [[] for _ in range(rng.randrange(1, 5))]
    for row in rows:
        share = rng.random() if overlap else (300 - row.seq) / 300
        sources[int(share * len(sources))].append(row)
    streams = [
        batches_of(newest_first(part), [rng.randrange(len(part) + 1) for _ in range(rng.randrange(8))])
        for part in sources
    ]

    found = await collect(Rounds(streams, nbytes=rng.choice([0, 500, 1 << 20])))

    assert [row for batch in found for row in ordered(batch)] == newest_first(rows)
    for batch in found:
        inside = [row.key for row in ordered(batch)]
        assert batch.repeats.tolist() == [False, *(a == b for a, b in pairwise(inside))]
    if not splits:
        edges = [(ordered(batch)[0].key, ordered(batch)[-1].key) for batch in found]
        assert all(before[1] < after[0] for before, after in pairwise(edges))


async def test_the_newer_source_wins_a_tie() -> None:
    newer, older = [Version(b"k", b"new", 7)], [Version(b"k", b"old", 7)]
    [found] = await collect(Rounds([batches_of(newer, []), batches_of(older, [])], nbytes=1))
    assert [row.value for row in ordered(found)] == [b"new", b"old"]


async def test_a_round_takes_about_what_it_should() -> None:
    rows = [Version(b"%06d" % number, b"v" * 100, 1 + number) for number in range(5000)]
    halves = [rows[::2], rows[1::2]]
    found = await collect(Rounds([batches_of(half, [100, 2400]) for half in halves], nbytes=50_000))
    sizes = [batch.rows.nbytes for batch in found]
    assert min(sizes[:-1]) > 20_000
    assert max(sizes) < 80_000


async def test_one_source_begins_to_read_in_each_turn_of_the_loop() -> None:
    turn = 0
    begun: list[int] = []
    all_begun = asyncio.Event()

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def read(number: int) -> AsyncIterator[Columns]:
        begun.append(turn)
        if len(begun) == 20:
            all_begun.set()
        await all_begun.wait()
        yield columns([Version(b"%02d" % number, b"value", 1 + number)])

    counting = asyncio.create_task(count_turns())
    found = await collect(Rounds([read(number) for number in range(20)], nbytes=1 << 20))
    counting.cancel()
    assert sum(len(batch.rows) for batch in found) == 20
    assert len(set(begun)) == len(begun) == 20
