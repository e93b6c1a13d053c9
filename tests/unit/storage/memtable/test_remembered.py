"""`Remembered`, and what a memtable with range deletes remembers."""

from __future__ import annotations

import pytest

from slate_async.codec.columns import NO_EXPIRY
from slate_async.storage.memtable import Memtable, remembered
from slate_async.storage.memtable.remembered import Remembered
from slate_async.types import DELETE, MERGE, PUT


def test_keys_are_bounded_by_number_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST_KEYS", 8)
    monkeypatch.setattr(remembered, "MOST_KEY_BYTES", 100)
    for length in (2, 12, 13, 40, 99):
        memory: Remembered[int] = Remembered()
        known, largest = memory.known, 0
        for number in range(50):
            key = b"%02d" % number + b"k" * (length - 2)
            memory.add(key, number)
            memory.add(key, number)
            assert memory.key_bytes == sum(map(len, known)) <= 100
            assert known[key] == number
            largest = max(largest, len(known))
        assert largest == min(8, 100 // length)
        forgotten = next(iter(known))
        memory.forget([forgotten, b"unknown"])
        assert forgotten not in known
        assert memory.key_bytes == sum(map(len, known))
        memory.clear()
        assert (len(known), memory.key_bytes) == (0, 0)


def table_with_a_range_delete() -> Memtable:
    table = Memtable()
    table.append_batch([b"a", b"b", b"c"], [b"1", b"2", b"3"], bytes([PUT] * 3), 1, None, 1)
    table.append_batch([b"x"], [b"z"], bytes([DELETE]), 4, None, 1)
    return table


def test_only_tables_with_range_deletes_remember() -> None:
    table = Memtable()
    table.append(b"a", b"1", PUT, 1, NO_EXPIRY, 1)
    table.append(b"a", b"", DELETE, 2, NO_EXPIRY, 1)
    assert table.seen is None
    assert table.appender() == table.append_next
    assert table_with_a_range_delete().seen is not None


@pytest.mark.parametrize("kind", [PUT, DELETE, MERGE])
def test_each_way_to_append_makes_it_forget_the_key(kind: int) -> None:
    table = table_with_a_range_delete()
    assert table.seen is not None
    known = table.seen.known
    for key in (b"a", b"b", b"c"):
        table.seen.add(key, b"old")
    table.append(b"a", b"", kind, 5, NO_EXPIRY, 1)
    assert set(known) == {b"b", b"c"}
    table.limit = table.nbytes + 1_000
    assert table.appender()(b"b", b"", kind, NO_EXPIRY, 1) == 6
    assert set(known) == {b"c"}
    table.limit = 0
    assert table.appender()(b"c", b"", kind, NO_EXPIRY, 1) == 0
    assert set(known) == {b"c"}, "nothing was appended"
    table.append_batch([b"c"], [b""], bytes([kind]), 7, None, 1)
    assert not known


def test_a_range_delete_and_dropped_rows_make_it_forget_all_keys() -> None:
    table = table_with_a_range_delete()
    assert table.seen is not None
    known = table.seen.known
    table.seen.add(b"c", b"3")
    table.append_batch([b"c"], [b"d"], bytes([DELETE]), 5, None, 1)
    assert not known
    table.seen.add(b"a", b"1")
    table.drop_after(4)
    assert not known
    assert table.seen.known is known, "views have this very dict"
