"""`Memtable.drop_after`: against a table that never had the rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slate_async.codec.columns import NO_EXPIRY
from slate_async.storage.memtable import Memtable
from slate_async.types import DELETE, MAX_SEQ, PUT

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
WRITES = st.lists(st.tuples(KEYS, st.binary(max_size=2), st.booleans()), max_size=40)


def keys_of(table: Memtable, limit: int, reverse: bool) -> list[bytes]:
    """Of a scan."""
    return [key for part in table.scan(None, None, limit, reverse) for key in part.keys.to_pylist()]


@given(WRITES, st.integers(0, 40), st.integers(0, 40))
def test_rows_that_are_dropped_were_never_there(written: list[tuple[bytes, bytes, bool]], kept: int, seen: int) -> None:
    """Whatever had been gathered and put in order before."""
    kept = min(kept, len(written))
    table, expected = Memtable(), Memtable()
    for number, (key, value, deleted) in enumerate(written, 1):
        for memtable in (table, expected) if number <= kept else (table,):
            memtable.append(key, value, DELETE if deleted else PUT, number * 2, NO_EXPIRY, number)
    list(table.order_steps(seen * 2))
    table.drop_after(kept)
    assert (len(table), table.last_seq, table.nbytes) == (kept, expected.last_seq, expected.nbytes)
    assert table.latest == expected.latest
    for limit in (MAX_SEQ, seen * 2):
        for key in {key for key, _, _ in written}:
            list(table.index_steps(limit))
            list(expected.index_steps(limit))
            assert table.get(key, limit) == expected.get(key, limit)
        for reverse in (False, True):
            assert keys_of(table, limit, reverse) == keys_of(expected, limit, reverse)
            for whole in (False, True):
                arguments = (None, None, 100, limit, 0, reverse, whole)
                assert table.first_rows(*arguments) == expected.first_rows(*arguments)
