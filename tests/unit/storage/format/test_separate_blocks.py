"""Many blocks decoded at once, each by itself: the same rows, the same refusals, and from when on all are seen."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.codec.columns import NO_EXPIRY
from slate_async.errors import CorruptionError
from slate_async.storage.format import separate_blocks
from slate_async.storage.format.block_encoding import encode_block
from slate_async.storage.format.separate_blocks import open_each, seen_from_of
from slate_async.types import PUT
from tests.support.rows import R, columns_of, row_lists, rows_of
from tests.unit.storage.format.test_joined_blocks import CODECS, laid_out


def seen_from(rows: list[R]) -> int | None:
    """The least sequence number whose readers see all of ``rows``."""
    one_version_each = all(row.key != before.key for before, row in pairwise(rows))
    plain = all(row.kind == PUT and row.expire_ms == NO_EXPIRY for row in rows)
    return max(row.seq for row in rows) if one_version_each and plain else None


def plain(rows: list[R]) -> list[R]:
    """Puts that never expire, in the order of their keys."""
    return sorted(row._replace(kind=PUT, expire_ms=NO_EXPIRY) for row in rows)


@settings(deadline=None, max_examples=150)
@given(st.lists(row_lists | row_lists.map(plain), min_size=1, max_size=5), st.sampled_from(CODECS), st.booleans())
def test_the_rows_of_each_block(parts: list[list[R]], codec: str, expire: bool) -> None:
    blocks = [encode_block(columns_of(part, with_expire=expire or None), codec) for part in parts]
    opened = open_each(laid_out(blocks), object_name="o")
    found = [raw.columns(seen) for raw, seen in opened]
    assert [rows_of(rows) for rows in found] == parts
    assert [rows.seen_from for rows in found] == [seen_from(part) for part in parts]
    assert [seen_from_of(rows) for rows in found] == [seen_from(part) for part in parts]


def test_what_is_too_large_together_is_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separate_blocks, "MAX_JOINED_BYTES", 100)
    parts = [[R(b"a", b"x" * 90, 7)], [R(b"a", seq=3), R(b"a", seq=2)]]
    opened = open_each(laid_out([encode_block(columns_of(part)) for part in parts]), object_name="o")
    found = [raw.columns(seen) for raw, seen in opened]
    assert [(rows_of(rows), rows.seen_from) for rows in found] == [(parts[0], 7), (parts[1], None)]


def test_the_damaged_block_is_named() -> None:
    blocks = laid_out([encode_block(columns_of([R(b"k%d" % number)])) for number in range(3)])
    blocks[1] = replace(blocks[1], crc=blocks[1].crc ^ 1)
    with pytest.raises(CorruptionError) as caught:
        open_each(blocks, object_name="the-name")
    assert (caught.value.object_name, caught.value.offset) == ("the-name", blocks[1].offset)
