"""The rows of each key: any version of any key, found in few looks however many there are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.storage.memtable.rows_by_key import MANY, NO_ROW, RowsByKey


@settings(deadline=None)
@given(
    keys=st.lists(st.sampled_from([b"a", b"b", b"c"] + [b"often"] * 20), max_size=4 * MANY),
    cuts=st.lists(st.integers(1, MANY), max_size=4),
    end=st.integers(0, 4 * MANY),
)
def test_any_version_is_found(keys: list[bytes], cuts: list[int], end: int) -> None:
    rows = RowsByKey()
    for size in [*cuts, len(keys)]:
        rows.add(keys[rows.rows : rows.rows + size])
    there = sorted(set(keys))
    newest = {key: row for row, key in enumerate(keys[:end])}
    assert {key: rows.row(key, end) for key in there} == {key: newest.get(key, NO_ROW) for key in there}
    assert rows.each(there, end) == [newest[key] for key in there if key in newest]
    assert rows.firsts(keys[end:], end) == [key for row, key in enumerate(keys[end:], end) if key not in keys[:row]]


def test_a_version_among_many_is_not_walked_to() -> None:
    class Counted(dict[int, int]):
        looks = 0

        def get(self, *arguments: int) -> int:  # type: ignore[override]
            self.looks += 1
            return super().get(*arguments)

    rows = RowsByKey()
    rows._older = older = Counted()
    for _ in range(10):
        rows.add([b"key"] * (100 * MANY))
    older.looks = 0
    assert [rows.row(b"key", end) for end in (0, 1, 50_000, 10**6)] == [NO_ROW, 0, 49_999, rows.rows - 1]
    assert older.looks <= MANY
