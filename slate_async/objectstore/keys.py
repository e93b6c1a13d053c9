"""What a key, a listing prefix, a metadata map and a body may be: one check for all backends.

Every backend calls these before it sends anything, so a bad argument is `InvalidError` at once and the same
keys are legal everywhere. The limits are the narrowest of the backends: S3 takes 1,024 bytes a key, file
systems 255 bytes a name, Azure identifiers as metadata names, HTTP strips spaces around header values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from slate_async.errors import InvalidError
from slate_async.objectstore.protocol import ByteRange, Span

MAX_KEY_BYTES = 900
MAX_SEGMENT_BYTES = 200
MAX_METADATA_BYTES = 2048

_KEY_CHARACTERS = re.compile(r"[ -\[\]-~]*\Z")
_METADATA_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")
_METADATA_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?\Z")


def check_key(key: str) -> str:
    """The key itself; `InvalidError` if it breaks the rules of the contract."""
    if not 1 <= len(key) <= MAX_KEY_BYTES:
        raise InvalidError(f"a key has 1 to {MAX_KEY_BYTES} bytes, this one {len(key)}", outcome="not_applied")
    if not _KEY_CHARACTERS.match(key):
        raise InvalidError(f"key {key[:80]!r} must be printable ASCII without a backslash", outcome="not_applied")
    for segment in key.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidError(f"key {key[:80]!r} has an empty, '.' or '..' segment", outcome="not_applied")
        if len(segment) > MAX_SEGMENT_BYTES:
            raise InvalidError(
                f"key {key[:80]!r} has a segment over {MAX_SEGMENT_BYTES} bytes long", outcome="not_applied"
            )
    return key


def check_listing(prefix: str, start_after: str) -> None:
    """`InvalidError` if either holds characters no key can have. Neither needs to be a key."""
    for name, value in (("prefix", prefix), ("start_after", start_after)):
        if len(value) > MAX_KEY_BYTES or not _KEY_CHARACTERS.match(value):
            raise InvalidError(
                f"{name} must be at most {MAX_KEY_BYTES} characters of printable ASCII without a backslash"
            )


def check_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """A copy of the map; `InvalidError` if it breaks the rules of the contract."""
    if not metadata:
        return {}
    copy = dict(metadata)
    for name, value in copy.items():
        if not _METADATA_NAME.match(name):
            raise InvalidError(f"metadata name {name[:80]!r} must match [a-z][a-z0-9-]*", outcome="not_applied")
        if not _METADATA_VALUE.match(value):
            raise InvalidError(
                f"metadata value of {name!r} must be printable ASCII, not empty, without a space at either end",
                outcome="not_applied",
            )
    if sum(len(name) + len(value) for name, value in copy.items()) >= MAX_METADATA_BYTES:
        raise InvalidError(f"metadata must be under {MAX_METADATA_BYTES} bytes in all", outcome="not_applied")
    return copy


def check_range(byte_range: ByteRange | None) -> None:
    """`InvalidError` for a range no object can satisfy: negative offset, length below 1."""
    if byte_range is None:
        return
    offset = byte_range.offset if isinstance(byte_range, Span) else 0
    if offset < 0 or byte_range.length < 1:
        raise InvalidError(f"a range needs an offset of 0 or more and a length of 1 or more: {byte_range}")


def past_end(key: str, span: Span, size: int) -> InvalidError:
    """The error of a span that starts at or past the end of an object of ``size`` bytes."""
    return InvalidError(f"{key!r} has {size} bytes, so nothing can be read at offset {span.offset}")


def resolve_range(key: str, byte_range: ByteRange | None, size: int) -> tuple[int, int]:
    """``(start, end)`` of what a range means in an object of ``size`` bytes.

    Raises `InvalidError` for a span that starts at or past the end."""
    check_range(byte_range)
    if byte_range is None:
        return 0, size
    if not isinstance(byte_range, Span):
        return max(0, size - byte_range.length), size
    if byte_range.offset >= size:
        raise past_end(key, byte_range, size)
    return byte_range.offset, min(size, byte_range.offset + byte_range.length)
