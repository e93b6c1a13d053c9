"""What a pending batch says about itself: `Description`, a MessagePack map in front of its updates.

Specified in ``docs/format/collection-pending-batch.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from slate_async.codec.envelope import FEATURES, decoding, pack
from slate_async.codec.records import Shape, no_fields
from slate_async.collections.codec.envelope import ENVELOPE, FOREIGN_PARTS
from slate_async.collections.codec.fields import conversions
from slate_async.collections.codec.parts import PART, PartRef
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind
from slate_async.types import Buffer


@dataclass(frozen=True, slots=True)
class Description:
    """The batch of updates from ``lower`` to ``upper``.

    token: of the append that made it; 32 hexadecimal digits
    writer: its name, or the shard of compare appends
    rows: updates in this object, or in all ``parts`` together
    diff_sum: of all their diffs
    part: the number of this object, if it is a part of a batch; by itself it says nothing
    parts: where the updates are, if not in this object, in order
    unknown: fields of newer versions, kept as they are
    """

    lower: Frontier
    upper: Frontier
    token: str
    writer: str
    rows: int
    diff_sum: int
    part: int | None = None
    parts: tuple[PartRef, ...] = ()
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


def encode_description(description: Description) -> bytes:
    """``description`` as MessagePack."""
    body = _shape(TimeKind.U64).pack(description)  # packing is the same for both kinds
    if any(part.is_foreign for part in description.parts):
        body[FEATURES] = [FOREIGN_PARTS]
    return pack(body)


def decode_description(payload: Buffer, kind: TimeKind, *, object_name: str, offset: int) -> Description:
    """What `encode_description` was given. ``payload`` was checked, and lies at ``offset`` of the object."""
    body = ENVELOPE.unpack(payload, object_name=object_name, offset=offset)
    with decoding(object_name, offset):
        found = _shape(kind).unpack(body)
        if not found.lower <= found.upper:
            raise ValueError(f"lower {found.lower} is not at or below upper {found.upper}")
        if found.parts and found.rows != sum(part.rows for part in found.parts):
            raise ValueError(f"its parts do not have {found.rows} rows")
    return found


@cache
def _shape(kind: TimeKind) -> Shape[Description]:
    return Shape(Description, own={**conversions(kind), PartRef: PART})
