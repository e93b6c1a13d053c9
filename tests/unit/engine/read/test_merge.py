"""Merging: order, whole keys per batch, any way the sources are cut, both directions."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from slate_async.codec.columns import Columns
from slate_async.engine.read import merge
from slate_async.engine.read.live import LiveRows, live_rows, newest_visible
from slate_async.engine.read.merge import MergedRows, Round, Stream
from slate_async.errors import InternalError
from slate_async.storage.format.ordering import repeated_keys
from slate_async.types import MAX_SEQ, MERGE
from tests.read_model import FakeTable, Version, columns, exhausted_budget, newest_first, tombstone, versions, visible

KEYS = [b"", b"a", b"a\0", b"aa", b"b", b"b\xff", b"\xff", b"\xff\xff"]


def random_sources(rng: random.Random, *, count: int, rows: int, overlap: bool) -> list[list[Version]]:
    """Rows spread over sources, newest source first; with ``overlap`` the ages of the sources mix."""
    everything = [
        Version(rng.choice(KEYS), b"%d" % seq, seq, rng.choice([0, 0, 1]), rng.choice([5, 2**63 - 1]), seq)
        for seq in range(1, rows + 1)
    ]
    if overlap:
        sources: list[list[Version]] = [[] for _ in range(count)]
        for row in everything:
            rng.choice(sources).append(row)
        return sources
    cuts = sorted(rng.randrange(rows + 1) for _ in range(count - 1))
    return [everything[low:high] for low, high in zip([0, *cuts], [*cuts, rows], strict=True)][::-1]


def streams(rng: random.Random, sources: list[list[Version]], reverse: bool) -> list[Stream]:
    sizes = [rng.choice([(1,), (2, 0, 1), (5,), (1, 7), (1000,)]) for _ in sources]
    return [
        Stream(FakeTable(rows, size).scan(None, None, reverse=reverse), local=rng.random() < 0.3)
        for rows, size in zip(sources, sizes, strict=True)
    ]


async def merged(streams: list[Stream], *, reverse: bool = False) -> AsyncIterator[Columns]:
    async for found in MergedRows(streams, reverse=reverse):
        yield found.all()


async def collect(batches: AsyncIterator[Columns], reverse: bool) -> list[list[Version]]:
    found = [versions(batch) async for batch in batches]
    return found[::-1] if reverse else found


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("seed", range(40))
async def test_merge(seed: int, reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(merge, "ROUND_ROWS", rng.choice([1, 8, 4096]))
    monkeypatch.setattr(merge, "LEAST_ROWS", rng.choice([1, 2, 64]))
    sources = random_sources(rng, count=rng.randrange(1, 6), rows=rng.randrange(60), overlap=rng.random() < 0.5)
    batches = await collect(merged(streams(rng, sources, reverse), reverse=reverse), reverse)
    everything = [row for rows in sources for row in rows]
    assert [row for batch in batches for row in batch] == newest_first(everything)
    owners = [key for batch in batches for key in {row.key for row in batch}]
    assert len(owners) == len(set(owners)), "a key is spread over batches"
    for max_seq in (0, len(everything) // 2, MAX_SEQ):
        live = LiveRows(
            streams(rng, sources, reverse),
            max_seq=max_seq,
            now_ms=rng.choice([4, 5]),
            yield_budget=exhausted_budget(),
            reverse=reverse,
        )
        now_ms = live._now_ms
        seen = await collect(live, reverse)
        assert all(seen), "an empty batch"
        assert [row for batch in seen for row in batch] == list(visible(everything, max_seq, now_ms).values())


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("seed", range(10))
async def test_rows_too_large_to_join(seed: int, reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "MAX_JOINED_BYTES", 0)
    joined: list[int] = []

    def concat(parts: list[Columns]) -> Columns:
        joined.append(sum(part.nbytes for part in parts))
        return original(parts)

    original = merge.concat
    monkeypatch.setattr(merge, "concat", concat)
    rng = random.Random(seed)
    sources = random_sources(rng, count=3, rows=40, overlap=False)
    batches = [versions(b) async for b in merged(streams(rng, sources, reverse), reverse=reverse)]
    everything = [row for rows in sources for row in rows]
    assert sorted(row for batch in batches for row in batch) == sorted(everything)
    assert any(len(batch) == 1 for batch in batches)
    assert joined == []
    live = LiveRows(
        streams(rng, sources, reverse), max_seq=30, now_ms=5, yield_budget=exhausted_budget(), reverse=reverse
    )
    seen = await collect(live, reverse)
    assert [row for batch in seen for row in batch] == list(visible(everything, 30, 5).values())


async def test_nothing_to_merge() -> None:
    assert [b async for b in MergedRows([])] == []
    assert [b async for b in MergedRows([Stream(FakeTable([]).scan(None, None)) for _ in range(3)])] == []


def test_newest_visible() -> None:
    rows = [Version(b"a", b"", 9), Version(b"a", b"", 3), Version(b"b", b"", 8), Version(b"c", b"", 2)]
    seqs, repeats = columns(rows).seqs, repeated_keys(columns(rows).keys)
    assert newest_visible(seqs, repeats, 9).tolist() == [0, 2, 3]
    assert newest_visible(seqs, repeats, 8).tolist() == [1, 2, 3]
    assert newest_visible(seqs, repeats, 2).tolist() == [3]
    assert newest_visible(seqs, repeats, 1).tolist() == []


def test_expired_row_hides_older_versions() -> None:
    rows = columns([Version(b"a", b"new", 2, expire_ms=100), Version(b"a", b"old", 1), Version(b"b", b"x", 3)])
    assert [row.value for row in versions(live_rows(Round(rows), max_seq=9, now_ms=99))] == [b"new", b"x"]
    assert [row.value for row in versions(live_rows(Round(rows), max_seq=9, now_ms=100))] == [b"x"]
    assert [row.value for row in versions(live_rows(Round(rows), max_seq=1, now_ms=100))] == [b"old"]


def test_without_an_operator_operands_are_refused_unless_hidden() -> None:
    operand = Version(b"a", b"+1", 5, MERGE)
    with pytest.raises(InternalError, match="no merge operator"):
        live_rows(Round(columns([operand])), max_seq=9, now_ms=0)
    assert len(live_rows(Round(columns([operand])), max_seq=4, now_ms=0)) == 0
    assert len(live_rows(Round(columns([tombstone(b"a", 6), operand])), max_seq=9, now_ms=0)) == 0


async def test_streams_are_closed_with_the_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "LEAST_ROWS", 2)
    sources = [FakeTable([Version(b"%d" % i, b"", i) for i in range(1, 9)], (2,)) for _ in range(3)]
    merged = MergedRows([Stream(source.scan(None, None)) for source in sources])
    await anext(merged)
    assert [source.scans_open for source in sources] == [1, 1, 1]
    await merged.aclose()
    await merged.aclose()
    assert [source.scans_open for source in sources] == [0, 0, 0]


async def test_a_failing_source_fails_the_merge_with_its_own_error() -> None:
    good = FakeTable([Version(b"a", b"", 1)])
    bad, worse = (FakeTable([Version(b"b", b"", 2)], fails=OSError(name)) for name in ("bad", "worse"))
    merged = MergedRows([Stream(source.scan(None, None)) for source in (good, bad, worse)])
    with pytest.raises(OSError, match=r"bad|worse"):
        await anext(merged)
    await merged.aclose()
    assert good.scans_open == bad.scans_open == worse.scans_open == 0
