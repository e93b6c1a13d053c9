"""Large values in merges: late, complete when wanted, and in memory only as long as nobody needs the room."""

from __future__ import annotations

import asyncio
import gc

import numpy as np
import pytest

from slate_async.codec.arrays import binary_array
from slate_async.codec.columns import NO_EXPIRY, Columns, concat
from slate_async.errors import CorruptionError, InternalError
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.storage.sst.late import LATE_BYTES, apart, drained
from slate_async.storage.sst.shares import LEAST_BYTES, ReadShares
from slate_async.types import DELETE, PUT

LARGE = b"l" * LATE_BYTES


def block(values: list[bytes], *, expires: bool = False) -> Columns:
    seqs = np.arange(1, len(values) + 1, dtype=np.uint64)
    kinds = np.array([PUT if value else DELETE for value in values], np.uint8)
    expire = np.arange(len(values), dtype=np.int64) if expires else None
    keys = binary_array([b"%03d" % number for number in range(len(values))])
    return Columns(keys, binary_array(values), seqs, kinds, expire, seqs.astype(np.int64), 7)


class Reads:
    """Reads a block again, and counts it."""

    def __init__(self, rows: Columns) -> None:
        self.rows = rows
        self.count = 0

    async def __call__(self) -> list[Columns]:
        self.count += 1
        return [self.rows]


async def whole(parts: list[Columns]) -> Columns:
    return concat([part if part.late is None else await part.late.complete(part) for part in parts])


def same(one: Columns, other: Columns) -> bool:
    numbers = [
        (rows.seqs.tolist(), rows.kinds.tolist(), rows.create_ms.tolist(), rows.expire_ms is not None)
        for rows in (one, other)
    ]
    if one.expire_ms is not None and other.expire_ms is not None:
        assert one.expire_ms.tolist() == other.expire_ms.tolist() != [NO_EXPIRY]
    return numbers[0] == numbers[1] and one.keys.equals(other.keys) and one.values.equals(other.values)


@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("capacity", [0, 16 << 20])
async def test_each_large_value_is_late_and_all_is_there_in_the_end(expires: bool, first: int, capacity: int) -> None:
    rows = block([b"a", b"", LARGE, b"b", LARGE + b"!", LARGE, b""], expires=expires)
    read, shares = Reads(rows), ReadShares(MemoryBudget(capacity))
    cut = rows.slice(first, len(rows))
    parts = apart(cut, read, ReadShares(MemoryBudget(0)), first)
    assert [part.late is not None for part in parts] == [False, True, False, True, True, False][first // 2 :]
    assert all(part.seen_from == 7 for part in parts)
    assert sum(part.values.nbytes for part in parts) < 1000
    assert sum(part.nbytes for part in parts) > 3 * LATE_BYTES
    parts = apart(cut, read, shares, first) if not capacity else parts
    assert same(await whole(parts), cut)
    assert read.count == 3  # nothing could be lent


async def test_what_is_lent_is_not_read_again_until_somebody_needs_the_room() -> None:
    rows = block([LARGE, LARGE, LARGE])
    budget = MemoryBudget(4 * LATE_BYTES)
    read, shares = Reads(rows), ReadShares(budget)
    parts = apart(rows, read, shares)
    assert len(parts) == 3
    assert budget.lent_bytes == rows.nbytes
    assert same(await whole(parts), rows)
    assert not read.count
    async with budget.hold(2 * LATE_BYTES):
        assert not budget.lent_bytes
        assert same(await whole(parts), rows)
    assert read.count == 3
    again = apart(rows, read, shares)
    assert budget.lent_bytes
    del again
    gc.collect()
    assert not budget.lent_bytes


async def test_a_block_that_is_read_again_is_lent_again_for_its_other_rows() -> None:
    rows = block([LARGE, LARGE, LARGE])
    budget = MemoryBudget(4 * LATE_BYTES)
    read, shares = Reads(rows), ReadShares(budget)
    parts = apart(rows, read, shares)
    for reads in (1, 2):
        async with budget.hold(2 * LATE_BYTES):
            assert not budget.lent_bytes
        assert same(await whole(parts), rows)
        assert read.count == reads
        assert budget.lent_bytes == rows.nbytes
    assert same(*await asyncio.gather(whole(parts), whole(parts)))
    del parts
    gc.collect()
    assert not budget.lent_bytes


@pytest.mark.parametrize("capacity", [0, 9 * LATE_BYTES], ids=["read again", "lent"])
async def test_a_row_that_is_complete_does_not_keep_its_block(capacity: int) -> None:
    rows = block([LARGE] * 8)
    parts = apart(rows, Reads(rows), ReadShares(MemoryBudget(capacity)))
    assert len(parts) == 8
    for part in parts:
        assert part.late is not None
        assert (await part.late.complete(part)).values.get_total_buffer_size() < 2 * LATE_BYTES


async def test_rows_that_fit_or_are_small_stay_as_they_are() -> None:
    shares = ReadShares(MemoryBudget(1 << 30))
    rows = block([LARGE, b"a"])
    assert apart(rows, Reads(rows), shares) == [rows]
    many = block([b"x" * (LATE_BYTES - 1)] * 2)
    assert many.nbytes > LEAST_BYTES
    assert apart(many, Reads(many), ReadShares(MemoryBudget(0))) == [many]


async def test_a_block_that_has_become_another_is_damage() -> None:
    rows = block([LARGE, LARGE])
    parts = apart(rows, Reads(block([b"a", LARGE, LARGE]).slice(1, 3)), ReadShares(MemoryBudget(0)))
    with pytest.raises(CorruptionError, match="other rows"):
        await whole(parts)


def test_late_rows_are_never_joined_and_go_with_their_row() -> None:
    rows = block([LARGE, LARGE])
    one, other = apart(rows, Reads(rows), ReadShares(MemoryBudget(0)))
    with pytest.raises(InternalError, match="stay alone"):
        concat([one, other])
    assert one.slice(0, 1).late is one.take(np.array([0])).late is one.late
    assert one.slice(0, 0).late is one.take(np.array([], np.int64)).late is None


def test_what_is_drained_is_given_in_order_and_not_kept() -> None:
    rows = block([b"a", b"b", b"c"])
    parts = [rows.slice(number, number + 1) for number in range(3)]
    given = drained(parts)
    assert [next(given).keys[0].as_py(), len(parts)] == [b"000", 2]
    assert [part.keys[0].as_py() for part in given] == [b"001", b"002"]
