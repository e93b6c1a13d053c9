"""Rows of many blocks, decoded together, as scans want them: in pieces that know from when on every row is seen."""

from __future__ import annotations

from dataclasses import replace

from slate_async.codec.columns import Columns
from slate_async.storage.format.separate_blocks import seen_from_of

SEEN_ROWS = 16_384
SEEN_BYTES = 2 << 20
"""A piece of which every reader sees every row is passed on as it is."""
PICKED_ROWS = 4096
PICKED_BYTES = 1 << 20
"""Of others somebody has to pick rows, a fraction of a millisecond for a piece."""


def in_pieces(rows: Columns, continues: bool) -> list[Columns]:
    """Sorted ``rows``, cut without a copy. ``continues``: the first ones are versions of a key that comes before them,
    which newer ones may hide."""
    newest = None if continues else seen_from_of(rows)
    if newest is not None:
        return [replace(piece, seen_from=newest) for piece in _cut(rows, SEEN_ROWS, SEEN_BYTES)]
    pieces: list[Columns] = []
    for piece in _cut(rows, PICKED_ROWS, PICKED_BYTES):
        hidden = continues if not pieces else piece.keys[0] == pieces[-1].keys[-1]
        pieces.append(replace(piece, seen_from=None if hidden else seen_from_of(piece)))
    return pieces


def _cut(rows: Columns, most_rows: int, most_bytes: int) -> list[Columns]:
    total = len(rows)
    step = max(1, min(most_rows, total * most_bytes // max(1, rows.nbytes)))
    return [rows.slice(low, min(total, low + step)) for low in range(0, total, step)]
