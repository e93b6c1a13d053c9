"""`slate_async.storage.sst.pieces`: cut small, and never said to be seen where a newer version may hide a row."""

from __future__ import annotations

import pytest

from slate_async.storage.sst import pieces
from slate_async.storage.sst.pieces import in_pieces
from slate_async.types import DELETE
from tests.support.rows import R, columns_of, rows_of


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "SEEN_ROWS", 10)
    monkeypatch.setattr(pieces, "PICKED_ROWS", 4)


def cut(rows: list[R], continues: bool = False) -> list[tuple[int, int | None]]:
    """Rows of each piece, and from when on they are seen."""
    found = in_pieces(columns_of(rows), continues)
    assert [row for piece in found for row in rows_of(piece)] == rows
    return [(len(piece), piece.seen_from) for piece in found]


def puts(count: int) -> list[R]:
    return [R(b"%03d" % number, seq=100 - number) for number in range(count)]


def test_rows_that_all_are_seen_are_cut_by_size_only() -> None:
    assert cut(puts(25)) == [(10, 100), (10, 100), (5, 100)]


def test_large_rows_are_few_in_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "SEEN_BYTES", 3_000)
    assert [rows for rows, _ in cut([R(b"%d" % number, b"v" * 1_000) for number in range(6)])] == [2, 2, 2]
    monkeypatch.setattr(pieces, "SEEN_BYTES", 10)
    assert [rows for rows, _ in cut(puts(3))] == [1, 1, 1]


def test_one_row_to_be_picked_costs_its_piece_only() -> None:
    rows = puts(12)
    rows[5] = rows[5]._replace(kind=DELETE)
    assert cut(rows) == [(4, 100), (4, None), (4, 92)]
    rows[5] = rows[5]._replace(kind=0, expire_ms=7)
    assert cut(rows) == [(4, 100), (4, None), (4, 92)]


def test_a_piece_that_begins_with_older_versions_does_not_say_which_reads_see_them() -> None:
    assert cut(puts(8), continues=True) == [(4, None), (4, 96)]
    rows = puts(8)
    rows[4] = rows[4]._replace(key=rows[3].key)
    assert cut(rows) == [(4, 100), (4, None)]
