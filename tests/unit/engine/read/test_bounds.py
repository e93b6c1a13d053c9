"""Bounds: which keys a scan covers, and what is refused."""

from __future__ import annotations

import pytest

from slate_async.arguments import BytesLike
from slate_async.engine.read import KeyRange, key_range
from slate_async.engine.read.bounds import successor_of_prefix
from slate_async.errors import InvalidError


@pytest.mark.parametrize(
    ("start", "end", "prefix", "expected"),
    [
        (None, None, None, KeyRange(None, None)),
        (b"a", None, None, KeyRange(b"a", None)),
        (bytearray(b"a"), memoryview(b"b"), None, KeyRange(b"a", b"b")),
        (None, None, b"ab", KeyRange(b"ab", b"ac")),
        (None, None, b"a\xff", KeyRange(b"a\xff", b"b")),
        (None, None, b"\xff\xff", KeyRange(b"\xff\xff", None)),
        (None, None, b"", KeyRange(b"", None)),
        (b"ab1", None, b"ab", KeyRange(b"ab1", b"ac")),
        (None, b"ab1", b"ab", KeyRange(b"ab", b"ab1")),
        (b"ab", b"ac", b"ab", KeyRange(b"ab", b"ac")),
        (b"\xff\xff\x01", None, b"\xff", KeyRange(b"\xff\xff\x01", None)),
    ],
)
def test_range(start: BytesLike | None, end: BytesLike | None, prefix: BytesLike | None, expected: KeyRange) -> None:
    assert key_range(start, end, prefix) == expected


@pytest.mark.parametrize(
    ("start", "end", "empty"),
    [
        (None, None, False),
        (b"a", b"a", True),
        (b"b", b"a", True),
        (None, b"", True),
        (None, b"\0", False),
        (b"a", b"a\0", False),
        (b"", None, False),
    ],
)
def test_empty(start: bytes | None, end: bytes | None, empty: bool) -> None:
    assert KeyRange(start, end).empty is empty


@pytest.mark.parametrize(
    ("start", "end", "prefix"),
    [(b"a", None, b"b"), (b"c\0", None, b"b"), (None, b"a", b"b"), (None, b"c\0", b"b"), ("a", None, None), (1, 2, 3)],
)
def test_refused(start: bytes, end: bytes, prefix: bytes) -> None:
    with pytest.raises(InvalidError):
        key_range(start, end, prefix)


def test_successor() -> None:
    for prefix, after in ((b"a", b"b"), (b"a\xff\xff", b"b"), (b"\xfe\xff", b"\xff"), (b"\xff", None), (b"", None)):
        assert successor_of_prefix(prefix) == after
