"""The register of a collection as bytes: its `Life`. Specified in ``docs/format/collection-register.md``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyarrow import ipc

from slate_async.codec.envelope import decoding
from slate_async.codec.records import no_fields
from slate_async.collections.codec.envelope import ENVELOPE, Kind
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema
from slate_async.types import Buffer

BYTES, COLUMNS = "bytes", "columns"
"""Kinds of data."""


class LifeState(Enum):
    """Whether the collection is there. The value is its stored name."""

    OPEN = "open"
    DELETED = "deleted"


class Appends(Enum):
    """How batches are appended; chosen at creation. The value is its stored name.

    DEFINITE: any number of writers, all of which write the same updates at a time
    COMPARE: one chain of batches, each of which says where the one before it ended
    """

    DEFINITE = "definite"
    COMPARE = "compare"


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a collection: a collection that is created again on its tombstone begins the next.

    uuid: of this life; in every pending batch
    number: counts the lives of one id from 1; its folder
    created_ms: when it was created, in ms since the epoch by the clock of the process that did; ``None``: by an older
        release, which did not say so
    unknown: fields of newer versions, kept as they are
    """

    uuid: UUID
    number: int
    state: LifeState
    schema: UpdateSchema
    appends: Appends
    created_ms: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


def encode_life(life: Life) -> bytes:
    """``life`` in its envelope."""
    body = {
        **life.unknown,
        "uuid": life.uuid.bytes,
        "life": life.number,
        "state": life.state.value,
        "times": life.schema.kind.value,
        "appends": life.appends.value,
    }
    if life.created_ms is not None:
        body["created_ms"] = life.created_ms
    if life.schema == UpdateSchema.of_bytes(life.schema.kind):
        body["data"] = BYTES
    else:
        body |= {"data": COLUMNS, "schema": life.schema.data.serialize().to_pybytes()}
    return ENVELOPE.seal(Kind.LIFE, body)


def decode_life(data: Buffer, *, object_name: str) -> Life:
    """What `encode_life` was given. Raises `CorruptionError` for damaged bytes, `InvalidError` for a format newer than
    this release."""
    body = ENVELOPE.unseal(data, Kind.LIFE, object_name=object_name)
    with decoding(object_name):
        kind = TimeKind(body.pop("times"))
        schema, data_kind = body.pop("schema", None), body.pop("data")
        if (data_kind, schema is None) not in ((BYTES, True), (COLUMNS, False)):
            raise ValueError(f"its data are {data_kind!r}")
        try:
            updates = UpdateSchema.of_bytes(kind) if schema is None else UpdateSchema(kind, _read_schema(schema))
        except (pa.ArrowException, OSError) as error:
            raise ValueError(str(error)) from error
        created_ms = body.pop("created_ms", None)
        if not isinstance(created_ms, int | None):
            raise ValueError(f"it was created at {created_ms!r}")
        return Life(
            created_ms=created_ms,
            uuid=UUID(bytes=body.pop("uuid")),
            number=body.pop("life"),
            state=LifeState(body.pop("state")),
            schema=updates,
            appends=Appends(body.pop("appends")),
            unknown=MappingProxyType(body) if body else no_fields(),
        )


def _read_schema(serialized: bytes) -> pa.Schema:
    return ipc.read_schema(pa.py_buffer(serialized))
