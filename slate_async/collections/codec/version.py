"""A version of the merged area as bytes. Specified in ``docs/format/collection-version.md``."""

from __future__ import annotations

from functools import cache
from typing import Any

from slate_async.codec.envelope import decoding
from slate_async.codec.records import Conversion, Shape
from slate_async.collections.codec.envelope import ENVELOPE, Kind
from slate_async.collections.codec.fields import conversions
from slate_async.collections.core.area import Area, Fuel
from slate_async.collections.core.times import TimeKind
from slate_async.types import Buffer


def encode_version(area: Area) -> bytes:
    """``area`` in its envelope."""
    return ENVELOPE.seal(Kind.VERSION, _shape(TimeKind.U64).pack(area))  # packing is the same for both kinds


def decode_version(data: Buffer, version: int, kind: TimeKind, *, object_name: str) -> Area:
    """What `encode_version` was given, which is version ``version``. Raises `CorruptionError` for damaged bytes or
    another version, `InvalidError` for a format newer than this release."""
    body = ENVELOPE.unseal(data, Kind.VERSION, object_name=object_name)
    with decoding(object_name):
        area = _shape(kind).unpack(body)
        if area.version != version:
            raise ValueError(f"it is version {area.version}, not {version}")
    return area


def _pack_fuel(fuel: Fuel) -> list[Any]:
    return [fuel.first, fuel.last, fuel.rows]


def _unpack_fuel(packed: list[Any]) -> Fuel:
    first, last, rows = packed
    return Fuel(first, last, rows)


@cache
def _shape(kind: TimeKind) -> Shape[Area]:
    return Shape(Area, own={**conversions(kind), Fuel: Conversion(_pack_fuel, _unpack_fuel)})
