"""The small vocabulary shared by all layers: buffers, row kinds, limits, rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from slate_async.errors import CorruptionError, said_by

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that are read where they lie."""

PUT = 0
"""Row kind: the row carries a value."""
DELETE = 1
"""Row kind: a tombstone; hides older versions of the key. With a value it deletes a range: all keys from its own on and
below the value."""
MERGE = 2
"""Row kind: an operand, for the database's merge operator; adds to older versions of the key."""

MAX_KEY_BYTES = 65_535
MAX_VALUE_BYTES = 2**31 - 2**17
"""Values are below 2 GiB, less the room a block needs for the largest key and its header, so one row always
fits a block below 2 GiB and Arrow's 32-bit offsets hold."""
MAX_SEQ = 2**63 - 1


class RowLimits(NamedTuple):
    """How long keys and values may be that are written, in bytes; at most what the formats hold."""

    max_key_bytes: int = MAX_KEY_BYTES
    max_value_bytes: int = MAX_VALUE_BYTES

    def describe_key(self) -> str:
        """The limit of keys, in words."""
        chosen = " (the setting max_key_bytes)" if self.max_key_bytes < MAX_KEY_BYTES else ""
        return f"1 to {self.max_key_bytes} bytes{chosen}"

    def describe_value(self) -> str:
        """The limit of values, in words."""
        chosen = " (the setting max_value_bytes)" if self.max_value_bytes < MAX_VALUE_BYTES else ""
        return f"at most {self.max_value_bytes} bytes{chosen}"


FORMAT_LIMITS: Final = RowLimits()
"""What the formats hold."""


class Row(NamedTuple):
    """One live row. Times are seconds since the Unix epoch, exact to the millisecond."""

    key: bytes
    value: bytes
    seq: int
    create_time: float
    expire_time: float | None


FIRST_KEY = b"\0"
"""The lowest key there can be."""
NO_END = b"\0"
"""The value of a row that deletes all keys from its own on. No range ends there, for none begins below it."""
ABOVE_ALL_KEYS = b"\xff" * (MAX_KEY_BYTES + 1)


@dataclass(frozen=True, slots=True)
class RangeDelete:
    """A row that hides all older rows of the keys from ``start`` (inclusive) to ``end`` (exclusive).

    until: the row's value: ``end``, or `NO_END`
    unknown: what a newer release says of it in the manifest"""

    seq: int
    start: bytes
    until: bytes
    create_ms: int
    unknown: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def end(self) -> bytes:
        """The first key behind it; one above all keys if it has no end."""
        return ABOVE_ALL_KEYS if self.until == NO_END else self.until

    def overlaps(self, first: bytes, last: bytes) -> bool:
        """Whether keys from ``first`` to ``last``, both included, may be in it."""
        return self.start <= last and first < self.end


class RowHit(NamedTuple):
    """The newest visible version of one key in one source: value, tombstone or operand, not yet judged by expiry.

    ``kind`` is `PUT`, `DELETE` or `MERGE`; ``expire_ms`` is `codec.columns.NO_EXPIRY` for never."""

    value: bytes
    seq: int
    kind: int
    expire_ms: int
    create_ms: int


RowPage: TypeAlias = tuple[list[tuple[bytes, Any]], bool, bool]
"""The first keys of a range in scan order in one source, as a reader sees them there: keys with rows, hides, ended.

A row is its value, or a `RowHit` where whole rows are asked for; ``None`` where a tombstone or an expired row hides the
key, in older sources too; ``hides`` is false if none is. ``ended``: the range holds no further keys in this source.
Many are made, so it is a plain tuple."""

NO_KEYS: Final[RowPage] = ([], False, True)
"""The `RowPage` of an empty range. Not to be changed."""


class NeedsIO(Enum):
    """The type of `NEEDS_IO`."""

    NEEDS_IO = "needs_io"


NEEDS_IO: Final[Literal[NeedsIO.NEEDS_IO]] = NeedsIO.NEEDS_IO
"""Answer of a synchronous read that cannot tell without waiting: for the store, or for a memtable to be indexed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a verification found, which is not as it should be, or is worth knowing.

    object_name: the key of an object, or what is stored there, such as ``"version N"`` or ``"writer register"``
    offset: the byte at which it was noticed; ``None`` if it is about no byte
    size: the object's, in bytes, where garbage is counted
    """

    object_name: str
    offset: int | None
    what: str
    size: int | None = None


def finding_of(error: CorruptionError) -> Finding:
    """``error`` as a finding."""
    return Finding(error.object_name, error.offset, said_by(error))
