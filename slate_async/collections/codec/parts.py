"""Parts of a batch that is more than one object, as the batch names them.

Invariant: the batch says length and checksum of a part, and those of its sections if it may be read in pieces. Sections
follow one another without a gap, so every byte that is read was checked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from slate_async.codec.checksum import crc32c
from slate_async.codec.records import Conversion
from slate_async.errors import CorruptionError
from slate_async.types import Buffer

MAX_PARTS = 10_000
MAX_PART_BYTES = 64 << 20
"""An object store's `put` takes whole objects."""
_TOKEN = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Section:
    """Some bytes of a part: a row group with its ``rows``, or, last, the footer with none. ``crc``: CRC32C."""

    rows: int
    nbytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class PartRef:
    """One object of a batch.

    rows: updates in it
    nbytes, crc: length and CRC32C of the whole object
    sections: of a merged part, in order; together they are the object
    token, number: in the name of a pending part that another process put for this batch, under a token of its own;
    without them the part has the batch's token, and is counted by its place
    """

    rows: int
    nbytes: int
    crc: int
    sections: tuple[Section, ...] = ()
    token: str | None = None
    number: int | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether another process put it."""
        return self.token is not None


def pack_part(part: PartRef) -> list[Any]:
    """``part`` as MessagePack knows it."""
    packed: list[Any] = [part.rows, part.nbytes, part.crc]
    if part.sections or part.is_foreign:
        packed.append([[section.rows, section.nbytes, section.crc] for section in part.sections])
    if part.is_foreign:
        packed += [part.token, part.number]
    return packed


def unpack_part(packed: list[Any]) -> PartRef:
    """What `pack_part` was given. Raises `ValueError` or `TypeError` for anything else."""
    rows, nbytes, crc, *more = packed
    sections = tuple(Section(*section) for section in more[0]) if more else ()
    if sections and (sum(s.nbytes for s in sections), sum(s.rows for s in sections)) != (nbytes, rows):
        raise ValueError("the sections of a part are not all of it")
    if len(more) < 2:
        return PartRef(rows, nbytes, crc, sections)
    token, number = more[1:]
    if not _TOKEN.fullmatch(token) or number not in range(MAX_PARTS):
        raise ValueError(f"token {token!r} and number {number!r} name no part")
    return PartRef(rows, nbytes, crc, sections, token, number)


PART = Conversion(pack_part, unpack_part)


def check_bytes(data: Buffer, nbytes: int, crc: int, *, object_name: str, offset: int = 0) -> memoryview:
    """``data``, which lies at ``offset`` of the object. Raises `CorruptionError` unless length and CRC32C are these."""
    view = memoryview(data)
    if len(view) != nbytes:
        raise CorruptionError(f"{len(view)} bytes in place of {nbytes}", object_name=object_name, offset=offset)
    if crc32c(view) != crc:
        raise CorruptionError("the checksum does not match", object_name=object_name, offset=offset)
    return view
