"""Memtable: appends in all forms, versions, conversion pieces and ordered scans."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest

from slate_async.codec.columns import NO_EXPIRY, Columns, concat
from slate_async.errors import InternalError, InvalidError
from slate_async.storage.memtable import ROW_OVERHEAD_BYTES, Memtable, convert, sorted_columns
from slate_async.storage.memtable.conversion import INLINE_BYTES, INLINE_ROWS, JOINED_PIECES
from slate_async.storage.memtable.memtable import FIRST_BATCH_ROWS
from slate_async.storage.memtable.order import BLOCK_KEYS, SortedKeys
from slate_async.storage.memtable.spans import STEP_BYTES, STEP_ROWS
from slate_async.types import DELETE, MAX_SEQ, MERGE, NEEDS_IO, PUT, RowHit

T = TypeVar("T")


class InlineOffload:
    def __init__(self) -> None:
        self.calls = 0

    async def run(self, function: Callable[[], T]) -> T:
        self.calls += 1
        return function()


def put(table: Memtable, key: bytes, value: bytes, seq: int, *, expire_ms: int = NO_EXPIRY, kind: int = PUT) -> None:
    table.append(key, value, kind, seq, expire_ms, 1000 + seq)


def tuples(parts: Iterable[Columns]) -> list[tuple[bytes, bytes, int, int, int, int]]:
    rows: list[tuple[bytes, bytes, int, int, int, int]] = []
    for part in parts:
        expires = [NO_EXPIRY] * len(part) if part.expire_ms is None else part.expire_ms.tolist()
        rows += zip(
            part.keys.to_pylist(),
            part.values.to_pylist(),
            part.seqs.tolist(),
            part.kinds.tolist(),
            expires,
            part.create_ms.tolist(),
            strict=True,
        )
    return rows


def test_empty() -> None:
    table = Memtable()
    assert (len(table), table.nbytes, table.first_seq, table.last_seq) == (0, 0, 0, 0)
    assert table.get(b"a", MAX_SEQ) is None
    assert list(table.scan(None, None, MAX_SEQ)) == []
    assert list(table.slices(0, 0)) == []


def test_versions_of_a_key() -> None:
    table = Memtable()
    put(table, b"a", b"1", 5)
    put(table, b"b", b"x", 6)
    put(table, b"a", b"", 9, kind=DELETE)
    put(table, b"a", b"2", 12, expire_ms=77)
    assert table.get(b"a", 4) is None
    assert table.get(b"a", 5) == RowHit(b"1", 5, PUT, NO_EXPIRY, 1005)
    assert table.get(b"a", 8) == RowHit(b"1", 5, PUT, NO_EXPIRY, 1005)
    assert table.get(b"a", 11) == RowHit(b"", 9, DELETE, NO_EXPIRY, 1009)
    assert table.get(b"a", 12) == RowHit(b"2", 12, PUT, 77, 1012)
    assert table.get(b"a", MAX_SEQ) == RowHit(b"2", 12, PUT, 77, 1012)
    assert table.get(b"c", MAX_SEQ) is None
    assert (table.first_seq, table.last_seq) == (5, 12)
    assert table.nbytes == 4 + 3 + 4 * ROW_OVERHEAD_BYTES
    assert [table.row_after(s) for s in (0, 4, 5, 6, 8, 9, 12, 13)] == [0, 0, 1, 2, 2, 3, 4, 4]


@pytest.mark.parametrize("with_expiry", [False, True])
@pytest.mark.parametrize("keys", [[b"a", b"b", b"c"], [b"a", b"b", b"a"], [b"z", b"z", b"z"]])
def test_batch_equals_single_appends(keys: list[bytes], with_expiry: bool) -> None:
    kinds = bytes([PUT, DELETE, PUT])
    values = [b"1", b"", b"333"]
    expires = [NO_EXPIRY, NO_EXPIRY, 50] if with_expiry else None
    one, many, replayed = Memtable(), Memtable(), Memtable()
    for table in (one, many, replayed):
        table.append(b"a", b"before", PUT, 3, NO_EXPIRY, 1)
    many.append_batch(keys, values, kinds, 10, expires, 42)
    for i in range(3):
        one.append(keys[i], values[i], kinds[i], 10 + i, expires[i] if expires else NO_EXPIRY, 42)
    for piece in one.slices(1, 4):
        replayed.extend(piece)
    for table in (one, many, replayed):
        table.append(b"b", b"after", PUT, 20, NO_EXPIRY, 60)
    assert tuples(one.slices(0, 5)) == tuples(many.slices(0, 5)) == tuples(replayed.slices(0, 5))
    for seq in range(22):
        for key in (b"a", b"b", b"c", b"z"):
            assert one.get(key, seq) == many.get(key, seq) == replayed.get(key, seq)
    assert one.nbytes == many.nbytes == replayed.nbytes


@pytest.mark.parametrize("count", [3, 100])
def test_operands_are_found_together_down_to_their_base(count: int) -> None:
    table = Memtable()
    for seq in range(1, count + 1):
        put(table, b"k", b"%d" % seq, 10 * seq, kind=PUT if seq == 2 else MERGE, expire_ms=[NO_EXPIRY, 77][seq % 2])
        put(table, b"other", b"", 10 * seq + 5)
    hits = [table.get(b"k", 10 * seq) for seq in range(count, 0, -1)]
    assert table.chain(b"k", MAX_SEQ, count) == hits[:-1]
    assert table.chain(b"k", 10 * count - 1, count) == hits[1:-1]
    assert table.chain(b"k", 20, count) == hits[-2:-1]
    assert table.chain(b"k", 10, count) == hits[-1:]
    assert table.chain(b"k", 9, count) == table.chain(b"none", MAX_SEQ, count) == []
    assert table.chain(b"k", MAX_SEQ, count - 2) is NEEDS_IO


def test_rows_that_are_not_plain_between_plain_ones() -> None:
    table = Memtable()
    expected: list[tuple[bytes, bytes, int, int, int, int]] = []
    for seq in range(1, 200):
        kind, expire_ms = (DELETE if seq % 50 == 7 else PUT), (99 if seq % 60 == 11 else NO_EXPIRY)
        expected.append((b"%d" % (seq % 90), b"%d" % seq, seq, kind, expire_ms, 1000 + seq))
        put(table, expected[-1][0], expected[-1][1], seq, expire_ms=expire_ms, kind=kind)
        if seq % 30 == 0:
            assert tuples(table.slices(0, seq)) == expected
        plain = kind == PUT and expire_ms == NO_EXPIRY
        assert table.find(expected[-1][0], seq) == (expected[-1][1] if plain else RowHit(*expected[-1][1:]))
    for seq in (3, 7, 8, 57, 71, 199):
        newest = {row[0]: RowHit(*row[1:]) for row in expected[:seq]}
        assert {key: table.get(key, seq) for key in newest} == newest
        found = {key: table.find(key, seq) for key in newest}
        assert found == {
            key: row.value if (row.kind, row.expire_ms) == (PUT, NO_EXPIRY) else row for key, row in newest.items()
        }
    assert table.expires


def test_empty_batch_changes_nothing() -> None:
    table = Memtable()
    table.append_batch([], [], b"", 1, None, 0)
    assert len(table) == 0
    assert table.last_seq == 0


def test_wrong_appends_are_refused_and_change_nothing() -> None:
    table = Memtable()
    put(table, b"a", b"1", 5)
    with pytest.raises(InternalError, match="5 is not above 5"):
        put(table, b"a", b"2", 5)
    with pytest.raises(InternalError, match="4 is not above 5"):
        table.append_batch([b"b"], [b""], b"\0", 4, None, 0)
    with pytest.raises(InternalError, match="length"):
        table.append_batch([b"b", b"c"], [b""], b"\0\0", 6, None, 0)
    with pytest.raises(InternalError, match="length"):
        table.append_batch([b"b"], [b""], b"\0", 6, [], 0)
    falling = Columns(
        pa.array([b"x", b"y"], pa.binary()),
        pa.array([b"", b""], pa.binary()),
        np.array([8, 8], np.uint64),
        np.zeros(2, np.uint8),
        None,
        np.zeros(2, np.int64),
    )
    with pytest.raises(InternalError, match="order"):
        table.extend(falling)
    table.freeze()
    table.freeze()
    with pytest.raises(InternalError, match="frozen"):
        put(table, b"a", b"2", 6)
    with pytest.raises(InternalError, match="frozen"):
        table.append_batch([b"b"], [b""], b"\0", 7, None, 0)
    assert tuples(table.slices(0, 1)) == [(b"a", b"1", 5, PUT, NO_EXPIRY, 1005)]
    assert len(table) == 1


def test_rows_that_are_not_there() -> None:
    table = Memtable()
    put(table, b"a", b"1", 1)
    for start, stop in ((0, 2), (-1, 1), (1, 0)):
        with pytest.raises(InvalidError):
            list(table.slices(start, stop))


def test_pieces_are_bounded() -> None:
    table = Memtable()
    big = bytes(STEP_BYTES // 2 - 1)
    sizes = [big, big, b"", big, bytes(STEP_BYTES * 2), b"x", b"y"]
    table.append_batch([b"%d" % i for i in range(7)], sizes, bytes(7), 1, None, 0)
    assert [len(piece) for piece in table.slices(0, 7)] == [2, 2, 1, 2]
    assert [piece.keys.to_pylist() for piece in table.scan(None, None, 7, reverse=True)] == [
        [b"5", b"6"],
        [b"4"],
        [b"2", b"3"],
        [b"0", b"1"],
    ]
    many = Memtable()
    count = 2 * STEP_ROWS + 5
    many.append_batch([b"%d" % i for i in range(count)], [b""] * count, bytes(count), 1, None, 0)
    assert [len(piece) for piece in many.slices(3, count)] == [STEP_ROWS, STEP_ROWS, 2]


@pytest.mark.parametrize("reverse", [False, True])
def test_neighbouring_keys_at_the_edges_of_batches(reverse: bool) -> None:
    keys = [b"k" + bytes(i) for i in range(3 * FIRST_BATCH_ROWS)]
    table = Memtable()
    table.append_batch(keys, keys, bytes(len(keys)), 1, None, 0)
    batches = list(table.scan(None, None, MAX_SEQ, reverse))
    assert len(batches) > 1
    assert [key for batch in (batches[::-1] if reverse else batches) for key in batch.keys.to_pylist()] == keys


def test_appends_go_on_between_the_steps_of_a_scan() -> None:
    table = Memtable()
    count = 1000
    table.append_batch([b"%04d" % i for i in range(count)], [b"old"] * count, bytes(count), 1, None, 0)
    for reverse in (False, True):
        seen: list[bytes] = []
        last = table.last_seq
        for piece in table.scan(b"0100", b"0900", last, reverse):
            table.append_batch(
                [b"%04d" % (i * 7 % 1300) for i in range(300)], [b"new"] * 300, bytes(300), 1 + table.last_seq, None, 0
            )
            list(table.scan(None, None, MAX_SEQ))  # puts the new keys in order under the running scan
            seen += piece.keys.to_pylist() if not reverse else piece.keys.to_pylist()[::-1]
        expected = [b"%04d" % i for i in range(100, 900)]
        assert seen == (expected[::-1] if reverse else expected)
    piece = next(table.scan(b"0007", b"0008", count))
    assert piece.values.to_pylist() == [b"old"]


@pytest.mark.parametrize("count", [1, INLINE_ROWS, INLINE_ROWS + 1])
async def test_sorted_columns(count: int) -> None:
    rng = random.Random(count)
    table = Memtable()
    for seq in range(1, count + 1):
        key = rng.randbytes(rng.randrange(1, 3))
        put(table, key, rng.randbytes(3), 2 * seq, kind=rng.choice([PUT, DELETE]), expire_ms=rng.choice([9, NO_EXPIRY]))
    expected = sorted(tuples(table.slices(0, count)), key=lambda row: (row[0], -row[2]))
    offload = InlineOffload()
    assert tuples([piece async for piece in sorted_columns(table, offload)]) == expected
    assert (offload.calls > 0) == (count > INLINE_ROWS)
    assert tuples(await convert(table, 0, count)) == tuples(table.slices(0, count))


async def test_many_pieces_are_joined_apart() -> None:
    rows = (2 * JOINED_PIECES + 3) * STEP_ROWS
    table = Memtable()
    keys = [b"%06d" % (number * 7919 % rows) for number in range(rows)]
    table.append_batch(keys, keys, bytes(rows), 1, None, 5)
    offload = InlineOffload()
    pieces = [piece async for piece in sorted_columns(table, offload)]
    assert [key for piece in pieces for key in piece.keys.to_pylist()] == sorted(keys)
    assert offload.calls == 2 + 1 + len(pieces)  # two joined, the rest joined and sorted, each piece taken


async def test_few_rows_of_many_bytes_are_not_sorted_on_the_loop() -> None:
    table = Memtable()
    for seq in (1, 2):
        put(table, b"%d" % (3 - seq), bytes(INLINE_BYTES), seq)
    offload = InlineOffload()
    rows = tuples([piece async for piece in sorted_columns(table, offload)])
    assert [key for key, *_ in rows] == [b"1", b"2"]
    assert offload.calls


async def test_sorted_columns_ignores_rows_appended_meanwhile() -> None:
    table = Memtable()
    put(table, b"b", b"1", 1)
    pieces = sorted_columns(table, InlineOffload())
    first = await anext(pieces)
    put(table, b"a", b"2", 2)
    assert tuples([first]) == [(b"b", b"1", 1, PUT, NO_EXPIRY, 1001)]
    assert [piece async for piece in pieces] == []


def test_order_steps_of_two_callers_interleave() -> None:
    table = Memtable()
    count = 5000
    keys = [b"%05d" % (i * 7919 % count) for i in range(count)]
    table.append_batch(keys, keys, bytes(count), 1, None, 0)
    one, two = table.order_steps(MAX_SEQ), table.order_steps(count)
    steps = 0
    for _ in one:
        steps += 1
        next(two, None)
    assert steps >= 2
    assert [k for k, *_ in tuples(table.scan(None, None, MAX_SEQ))] == sorted(keys)


@pytest.mark.parametrize("seed", range(6))
def test_sorted_keys_against_a_list(seed: int) -> None:
    rng = random.Random(seed)
    order = SortedKeys()
    model: set[bytes] = set()
    sizes = (0, 1, 5, 700, BLOCK_KEYS * 3, 3, BLOCK_KEYS * 5, 50, 400)
    for size in sizes:
        low, high = sorted(rng.randrange(1 << 16) for _ in range(2))  # some clustered, some spread
        fresh = {rng.randrange(low, high + 1 + size * 4).to_bytes(3, "big") for _ in range(size)} - model
        model |= fresh
        order.add(rng.sample(sorted(fresh), len(fresh)))
        expected = sorted(model)
        assert len(order) == len(expected)
        assert order.ascending(None, None, 1 << 30) == expected
        assert order.descending(None, None, 1 << 30) == expected
        for _ in range(30):
            start, end = (rng.choice([None, rng.randrange(1 << 17).to_bytes(3, "big")]) for _ in range(2))
            count = rng.choice([1, 3, 1000, 5000])
            inside = [k for k in expected if (start is None or k >= start) and (end is None or k < end)]
            assert order.ascending(start, end, count) == inside[:count]
            assert order.descending(start, end, count) == inside[-count:]


def test_pieces_join_again() -> None:
    table = Memtable()
    put(table, b"a", b"1", 1)
    put(table, b"b", b"2", 2, expire_ms=5)
    joined = concat(list(table.slices(0, 1)) + list(table.slices(1, 2)))
    assert tuples([joined]) == tuples(table.slices(0, 2))
