"""The index of a large merged batch as bytes: which parts it has. Specified in ``docs/format/collection-index.md``.

The parts are sorted, and a part's rows are before those of the next. ``edges`` has the first and the last data of each,
so that a reader skips parts without opening them. The index lies under the batch's name, a part under that name with
its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from slate_async.codec.envelope import decoding
from slate_async.codec.records import no_fields
from slate_async.collections.codec.envelope import ENVELOPE, Kind
from slate_async.collections.codec.parts import MAX_PARTS, PartRef, pack_part, unpack_part
from slate_async.collections.core.updates import UpdateSchema
from slate_async.errors import InvalidError
from slate_async.types import Buffer


@dataclass(frozen=True, slots=True)
class Index:
    """What a batch consists of.

    edges: data columns; rows 2i and 2i + 1 are the first and the last data of part i
    hashed_upper: what its name has a hash of, in place of the batch's upper
    unknown: fields of newer versions, kept as they are
    """

    parts: tuple[PartRef, ...]
    edges: pa.RecordBatch
    hashed_upper: str | None = None
    unknown: Mapping[str, Any] = field(default_factory=no_fields)

    @property
    def rows(self) -> int:
        """Of all parts."""
        return sum(part.rows for part in self.parts)


def encode_index(index: Index) -> bytes:
    """``index`` in its envelope. Raises `InvalidError` for too many parts, or edges of other ones."""
    if len(index.parts) > MAX_PARTS:
        raise InvalidError(f"a batch has at most {MAX_PARTS} parts, not {len(index.parts)}")
    if index.edges.num_rows != 2 * len(index.parts):
        raise InvalidError(f"{index.edges.num_rows} edges do not fit {len(index.parts)} parts")
    fields: dict[str, Any] = {
        **index.unknown,
        "parts": [pack_part(part) for part in index.parts],
        "edges": index.edges.serialize().to_pybytes(),
    }
    if index.hashed_upper is not None:
        fields["upper"] = index.hashed_upper
    return ENVELOPE.seal(Kind.INDEX, fields)


def decode_index(data: Buffer, schema: UpdateSchema, *, object_name: str) -> Index:
    """What `encode_index` was given. Raises `CorruptionError` for damaged bytes, `InvalidError` for a format newer than
    this release."""
    body = ENVELOPE.unseal(data, Kind.INDEX, object_name=object_name)
    with decoding(object_name):
        parts = tuple(unpack_part(packed) for packed in body.pop("parts"))
        try:
            edges = ipc.read_record_batch(pa.py_buffer(body.pop("edges")), schema.data)
            edges.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(str(error)) from error
        if edges.num_rows != 2 * len(parts):
            raise ValueError(f"{edges.num_rows} edges do not fit {len(parts)} parts")
        upper = body.pop("upper", None)
        if not (upper is None or isinstance(upper, str)):
            raise ValueError(f"{upper!r} is no upper")
    return Index(parts, edges, upper, MappingProxyType(body) if body else no_fields())
