"""A head as bytes. Specified in ``docs/format/table-head.md``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from slate_async.codec.records import Conversion, Shape
from slate_async.errors import InvalidError
from slate_async.tables.codec.envelope import ENVELOPE, Kind, decoding_arrow
from slate_async.tables.codec.parts import pack_ref, pack_schema, unpack_ref, unpack_schema
from slate_async.tables.core.head import Head, Job, Kept, LinkRef, Mark, Totals
from slate_async.tables.core.schema import TableSchema
from slate_async.types import Buffer

MAX_HEAD_BYTES: Final = 350_000
"""What a register holds."""


def encode_head(head: Head) -> bytes:
    """``head``, whose change is stored, in its envelope. Raises `InvalidError` for one that is too large."""
    data = ENVELOPE.seal(Kind.HEAD, _shape().pack(head))
    if len(data) > MAX_HEAD_BYTES:
        raise InvalidError(
            f"the table's head would have {len(data)} bytes, at most {MAX_HEAD_BYTES} are stored: remove tags,"
            " properties or columns",
            outcome="not_applied",
        )
    return data


def decode_head(data: Buffer, version: int, token: str, *, object_name: str) -> Head:
    """What `encode_head` was given, which is version ``version``. Raises `CorruptionError` for damaged bytes or another
    version, `InvalidError` for a format newer than this release."""
    body = ENVELOPE.unseal(data, Kind.HEAD, object_name=object_name)
    with decoding_arrow(object_name):
        head = _shape().unpack({**body, "token": token})
        if head.version != version or not head.schemas:
            raise ValueError(f"it is version {head.version}, not {version}")
    return head


def _by_name(kind: Any) -> Conversion:
    """A map of names to tuples of ``kind``."""

    def pack(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: list(value) for name, value in values.items()}

    def unpack(packed: dict[str, Any]) -> Mapping[str, Any]:
        return MappingProxyType({name: kind(*value) for name, value in packed.items()})

    return Conversion(pack, unpack)


@cache
def _shape() -> Shape[Head]:
    own = {
        LinkRef: Conversion(pack_ref, unpack_ref),
        TableSchema: Conversion(pack_schema, unpack_schema),
        Totals: Conversion(list, lambda packed: Totals(*packed)),
        "pins": _by_name(Kept),
        "tags": _by_name(Kept),
        "marks": _by_name(Mark),
        "jobs": _by_name(Job),
    }
    return _HeadShape(Head, besides=("change",), own=own)


class _HeadShape(Shape[Head]):
    """The token is known from where a head lies."""

    def pack(self, value: Head) -> dict[str, Any]:
        packed = super().pack(value)
        del packed["token"]
        return packed
