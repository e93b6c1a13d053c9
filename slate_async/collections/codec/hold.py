"""A hold as bytes. Specified in ``docs/format/collection-hold.md``."""

from __future__ import annotations

from functools import cache

from slate_async.codec.envelope import decoding
from slate_async.codec.records import Shape
from slate_async.collections.codec.envelope import ENVELOPE, Kind
from slate_async.collections.codec.fields import conversions
from slate_async.collections.core.holding import Hold
from slate_async.collections.core.times import TimeKind
from slate_async.types import Buffer


def encode_hold(hold: Hold) -> bytes:
    """``hold`` in its envelope."""
    return ENVELOPE.seal(Kind.HOLD, _shape(TimeKind.U64).pack(hold))  # packing is the same for both kinds


def decode_hold(data: Buffer, kind: TimeKind, *, object_name: str) -> Hold:
    """What `encode_hold` was given. Raises `CorruptionError` for damaged bytes, `InvalidError` for a format newer than
    this release."""
    body = ENVELOPE.unseal(data, Kind.HOLD, object_name=object_name)
    with decoding(object_name):
        hold = _shape(kind).unpack({"version": None, "lease_ms": None, **body})
        if (hold.version is None) != (hold.lease_ms is None):
            raise ValueError("it has either a version or a lease, and not both")
    return hold


@cache
def _shape(kind: TimeKind) -> Shape[Hold]:
    return Shape(Hold, own=conversions(kind))
