"""What stands before the keys of a namespace or a map: docs/format/namespace.md.

No prefix begins another one of its kind, because names hold no NUL. Neither text in UTF-8 nor a packed key begins as
they do, so keys that the application makes of these do not meet them.
"""

from __future__ import annotations

from slate_async.engine.read.bounds import KeyRange, key_range, successor_of_prefix
from slate_async.errors import InvalidError

NAMESPACE, MAP = b"\xfe", b"\xfd"
MAX_NAME_BYTES = 255


def prefix_of(kind: bytes, name: str) -> bytes:
    """Of the namespace (`NAMESPACE`) or map (`MAP`) called ``name``. Raises `InvalidError` for what is no name."""
    return kind + encoded_name(name) + b"\0"


def encoded_name(name: str) -> bytes:
    """``name`` as it is stored. Raises `InvalidError` unless it is text of 1 to `MAX_NAME_BYTES` bytes without NUL."""
    if not isinstance(name, str):
        raise InvalidError(f"a name is a str, not {type(name).__name__}")
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(f"a name is Unicode text: {error}") from None
    if not 0 < len(encoded) <= MAX_NAME_BYTES or b"\0" in encoded:
        raise InvalidError(f"a name has 1 to {MAX_NAME_BYTES} bytes of UTF-8 without NUL, not {name!r}")
    return encoded


def span_of(prefix: bytes, within: KeyRange) -> KeyRange:
    """The range of stored keys for a range of keys below ``prefix``."""
    end = successor_of_prefix(prefix) if within.end is None else prefix + within.end
    return KeyRange(prefix + (within.start or b""), end)


def whole(prefix: bytes) -> KeyRange:
    """All that lies below ``prefix``."""
    return span_of(prefix, key_range(None, None, None))
