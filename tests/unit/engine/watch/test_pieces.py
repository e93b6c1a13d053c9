"""Places, pieces, and what is kept of the newest."""

from __future__ import annotations

import pytest

from slate_async.engine.changes.change import Change
from slate_async.engine.watch import pieces
from slate_async.engine.watch.pieces import Limits, Piece, Place, Recent, place_after, size_of


def change(seq: int, key: bytes = b"k", value: bytes | None = b"v") -> Change:
    return Change("put", key, value, seq, 0.0, None)


def piece(first: int, last: int) -> Piece:
    """Numbers ``first`` to ``last``."""
    return Piece([change(seq) for seq in range(first, last + 1)], Place(first - 1), Place(last))


def test_a_place_inside_an_ingest_is_a_key() -> None:
    place = place_after(change(5, b"m"), 4)
    assert place == Place(4, b"m")
    assert [place.covers(change(*row)) for row in ((4, b"z"), (5, b"a"), (5, b"m"), (5, b"n"), (6, b"a"))] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert place_after(change(4), 4) == Place(4)
    assert Place(4) < place < Place(5)


def test_a_piece_is_cut_where_somebody_is() -> None:
    whole = piece(3, 6)
    assert whole.above(Place(2)) is whole
    above = whole.above(Place(4))
    assert ([row.seq for row in above.changes], above.begin, above.end) == ([5, 6], Place(4), Place(6))
    assert whole.matching(b"x") == []
    assert whole.matching(b"") is whole.changes


def test_the_newest_are_kept_without_a_gap() -> None:
    recent = Recent(Limits(5, 1 << 20))
    recent.restart(Place(2))
    for kept in (piece(3, 4), piece(5, 6), piece(7, 9)):
        recent.add(kept)
    assert recent.floor == Place(4)
    assert [row.seq for part in recent.after(Place(5)) for row in part.changes] == [6, 7, 8, 9]
    recent.add(piece(10, 20))
    assert (recent.floor, recent.nbytes) == (Place(20), 0), "more than is kept in one piece"


def test_the_bytes_of_the_newest_are_limited() -> None:
    one = size_of([change(1)])
    recent = Recent(Limits(100, 3 * one))
    for seq in range(1, 6):
        recent.add(piece(seq, seq))
    assert (recent.floor, recent.nbytes) == (Place(2), 3 * one)


def test_what_somebody_needs_is_kept_beyond_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    recent = Recent(Limits(4, 1 << 20))
    recent.keep = Place(2)
    for seq in range(1, 21):
        recent.add(piece(seq, seq))
    assert (recent.floor, recent.pressed) == (Place(2), True)
    recent.keep = Place(10)
    recent.trim()
    assert recent.floor == Place(10)
    monkeypatch.setattr(pieces, "KEPT_BYTES", 6 * size_of([change(1)]))
    recent.trim()
    assert recent.floor == Place(14), "not more than so many bytes"
    recent.keep = None
    recent.trim()
    assert (recent.floor, recent.pressed) == (Place(16), False)
