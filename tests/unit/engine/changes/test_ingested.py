"""The rows of one ingest come in the order of their keys, wherever they stand."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slate_async.codec.columns import Columns
from slate_async.engine.changes import ingested
from slate_async.engine.changes.ingested import IngestedRows, lanes
from slate_async.engine.changes.order import shared_by_key
from slate_async.engine.read.bounds import KeyRange
from slate_async.errors import UnavailableError
from slate_async.storage.manifest.state import SstRef

SEQ = 7
Row = tuple[bytes, int]


def sst(name: str, rows: list[Row]) -> SstRef:
    seqs = [seq for _, seq in rows]
    keys = [key for key, _ in rows]
    return SstRef(name, name.encode(), 1, len(rows), 0, keys[0], keys[-1], min(seqs), max(seqs), 1)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, list[Row]], SstRef]:
    """Makes SSTs, which are read some rows at a time; every now and then the store does not answer."""
    tables: dict[str, list[Row]] = {}
    rng = random.Random(1)

    def make(name: str, rows: list[Row]) -> SstRef:
        tables[name] = rows
        return sst(name, rows)

    async def read(reader: Any, start: bytes | None, end: bytes | None, **_: Any) -> AsyncIterator[Columns]:
        rows = [row for row in tables[reader] if (start is None or row[0] >= start) and (end is None or row[0] < end)]
        while rows:
            if rng.random() < 0.05:
                raise UnavailableError("not now")
            count = rng.randint(1, 4)
            yield columns(rows[:count])
            rows = rows[count:]

    monkeypatch.setattr(ingested, "read_batches", read)
    return make


def columns(rows: list[Row]) -> Columns:
    keys = pa.array([key for key, _ in rows], pa.binary())
    seqs = np.array([seq for _, seq in rows], np.uint64)
    return Columns(keys, keys, seqs, np.zeros(len(rows), np.uint8), None, np.zeros(len(rows), np.int64))


async def all_rows(rows: IngestedRows) -> list[Row]:
    found: list[Row] = []
    while not rows.over:
        try:
            parts = await rows.next()
        except UnavailableError:
            continue
        found += [row for part in parts for row in zip(part.keys.to_pylist(), part.seqs.tolist(), strict=True)]
    return found


@pytest.mark.parametrize("part_bytes", [1, 200, 8 << 20])
async def test_rows_come_by_key(
    stored: Callable[[str, list[Row]], SstRef], monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    """Some of the job's SSTs were compacted, into a run of two, and others were not."""
    monkeypatch.setattr(ingested, "PART_BYTES", part_bytes)
    keys = [b"%03d" % number for number in range(100)]
    compacted = sorted(
        [(key, SEQ) for key in (*keys[:30], *keys[60:80])] + [(key, seq) for key in keys for seq in (9, 3)],
        key=lambda row: (row[0], -row[1]),
    )
    ssts = [
        stored("late", [(key, SEQ) for key in keys[80:]]),
        stored("early", [(key, SEQ) for key in keys[30:60]]),
        stored("run/2", compacted[120:]),
        stored("run/1", compacted[:120]),
    ]
    opened: list[str] = []

    def open_sst(ref: SstRef) -> Any:
        opened.append(ref.location)
        return ref.location

    rows = IngestedRows(SEQ, ssts, open_sst)
    assert await all_rows(rows) == [(key, SEQ) for key in keys]
    assert len(opened) == 4, "each is opened once"
    part = IngestedRows(SEQ, ssts, open_sst, KeyRange(b"020", b"085"))
    assert await all_rows(part) == [(key, SEQ) for key in keys[20:85]]
    assert await all_rows(IngestedRows(SEQ, ssts, open_sst, KeyRange(b"x", b"y"))) == []


def test_rows_that_share_a_number_are_put_in_the_order_of_keys() -> None:
    rows = columns([(b"z", 1), (b"b", 2), (b"a", 2), (b"c", 2), (b"a", 3)])
    assert shared_by_key(rows).keys.to_pylist() == [b"z", b"a", b"b", b"c", b"a"]
    alone = columns([(b"z", 1), (b"a", 2)])
    assert shared_by_key(alone) is alone


def test_what_follows_one_another_is_one_lane() -> None:
    ssts = [
        sst(name, [(key.encode(), SEQ) for key in name.split("-")]) for name in ("c-d", "a-b", "d-e", "b2-z", "f-g")
    ]
    assert [[ref.location for ref in lane] for lane in lanes(ssts)] == [["a-b", "b2-z"], ["c-d", "f-g"], ["d-e"]]
    assert lanes([]) == []
