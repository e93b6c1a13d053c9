"""`CollectionInfo`: what a collection is, as users say and see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from slate_async.collections.codec.life import Appends, Life
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema
from slate_async.errors import InvalidError


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A collection, as its register says.

    name: in its lake
    state: ``"open"`` or ``"deleted"``
    life: how often it was created
    time: ``"u64"``, or ``"u64x2"`` for pairs
    appends: ``"definite"``, or ``"compare"`` if each append says where the one before it ended
    data: ``bytes``, or the schema of the data columns
    created_ms: when this life was created, in ms since the epoch by the clock of the process that did; ``None`` if an
        older release created it
    """

    name: str
    state: Literal["open", "deleted"]
    life: int
    time: Literal["u64", "u64x2"]
    appends: Literal["definite", "compare"]
    data: type[bytes] | pa.Schema
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DamagedCollection:
    """A collection of which nothing is known but its name: its register is damaged or missing.

    what: is wrong, and what to do
    """

    name: str
    what: str
    state: Literal["damaged"] = "damaged"


def info_of(name: str, life: Life) -> CollectionInfo:
    """What the register of the collection ``name`` says."""
    schema = life.schema
    is_bytes = schema == UpdateSchema.of_bytes(schema.kind)
    return CollectionInfo(
        name=name,
        state=life.state.value,
        life=life.number,
        time=schema.kind.value,
        appends=life.appends.value,
        data=bytes if is_bytes else schema.data,
        created_ms=life.created_ms,
    )


def schema_of(data: type[bytes] | pa.Schema, time: str) -> UpdateSchema:
    """As a user says it. Raises `InvalidError`."""
    try:
        kind = TimeKind(time)
    except ValueError:
        raise InvalidError(f"time is {' or '.join(repr(kind.value) for kind in TimeKind)}, not {time!r}") from None
    if data is bytes:
        return UpdateSchema.of_bytes(kind)
    if not isinstance(data, pa.Schema):
        raise InvalidError(f"data is bytes or a pyarrow.Schema, not {data!r}")
    return UpdateSchema(kind, data)


def appends_of(appends: str) -> Appends:
    """As a user says it. Raises `InvalidError`."""
    try:
        return Appends(appends)
    except ValueError:
        raise InvalidError(f"appends is {' or '.join(repr(kind.value) for kind in Appends)}, not {appends!r}") from None


def difference(wanted: Life, found: Life) -> str | None:
    """How the collection of the life ``found`` differs from that of ``wanted``; ``None`` if both are of one kind."""
    asked, there = info_of("", wanted), info_of("", found)
    for what in ("time", "appends", "data"):
        mine, stored = getattr(asked, what), getattr(there, what)
        if mine != stored:
            return f"with {what} {_shown(stored)}, not {_shown(mine)}"
    return None


def _shown(value: object) -> str:
    if isinstance(value, pa.Schema):
        return f"({', '.join(f'{field.name}: {field.type}' for field in value)})"
    return "bytes" if value is bytes else repr(value)
