"""Pending batches of one life of a collection: appended, described, read, listed, deleted.

A batch is put once, if none of its name is there; a part is put over what a former attempt left of it, because its name
has a token that no other append has. Parts are put before the batch that names them.

Invariants: what is read was checked as a whole, belongs to this life, and has the bounds that its name says (C5). So a
batch of another name, copied there, is `CorruptionError`.

Rules C5 to C7 of collections.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa

from metastores.protocol import Committed, Conflict, Unknown
from slate_async.codec.arrays import is_larger
from slate_async.codec.checksum import crc32c
from slate_async.collections.codec.description import Description
from slate_async.collections.codec.parts import MAX_PART_BYTES, PartRef, check_bytes
from slate_async.collections.codec.pending import PEEK_BYTES, Pending, decode_pending, encode_pending, peek_description
from slate_async.collections.core import names
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import NamedFrontier, PendingName
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.store.conditional import put_if
from slate_async.collections.store.spans import read_span
from slate_async.errors import CorruptionError, InternalError, InvalidError, UnavailableError
from slate_async.objectstore.prefixed import whole_key
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore, Span
from slate_async.runtime.protocol import Offload

SMALL_BYTES = 32 << 10
"""A batch of less is read with its description."""
OFFLOAD_BYTES = 256 << 10
"""Encoding or decoding more than this happens in a worker thread."""


class Listed(NamedTuple):
    """An object of the pending area, by its name."""

    key: str
    name: PendingName
    nbytes: int


class PendingStore:
    """Pending batches of the life ``collection``, whose folder is ``store``."""

    def __init__(self, store: ObjectStore, schema: UpdateSchema, collection: UUID, offload: Offload) -> None:
        self._store = store
        self._schema = schema
        self._collection = collection
        self._offload = offload

    async def encoded(
        self, name: PendingName, description: Description, updates: pa.RecordBatch | pa.Table | None
    ) -> bytes:
        """The bytes of a batch, or of a part, which is to be called ``name``. Raises `InvalidError` for more than
        64 MiB."""
        _check_named(name, description)

        def encode() -> bytes:
            return encode_pending(description, updates, self._schema, self._collection)

        large = updates is not None and is_larger(updates, OFFLOAD_BYTES)
        data = await self._offload.run(encode) if large else encode()
        if len(data) > MAX_PART_BYTES:
            raise InvalidError(f"a batch of {len(data)} bytes is above {MAX_PART_BYTES}; write it in parts")
        return data

    async def put(self, name: PendingName, data: bytes) -> Committed[str] | Conflict[Description] | Unknown:
        """Put a batch, once; ``data``: what `encoded` gave for ``name``. `Conflict` has the description of the batch
        that is there, of whichever append.

        Raises `UnavailableError` if certainly nothing was put."""
        outcome = await put_if(self._store, str(name), data, None)
        if not isinstance(outcome, Conflict):
            return outcome
        try:
            found = await self.describe(name)
        except UnavailableError as error:
            return Unknown(f"a batch is there already, and could not be read: {error}")
        if found is None:
            return Unknown("a batch was there already, and was deleted since")
        return Conflict(found)

    async def put_part(
        self, name: PendingName, description: Description, updates: pa.RecordBatch | pa.Table
    ) -> PartRef:
        """Put a part of a large batch; returns what the batch is to say of it. It may be repeated.

        Raises `InvalidError` for a part of more than 64 MiB, `UnavailableError`."""
        if name.part is None or (name.token, name.part) != (description.token, description.part):
            raise InternalError(f"{name} is no name of part {description.part} of append {description.token}")
        data = await self.encoded(name, description, updates)
        await self._store.put(str(name), data)
        return PartRef(updates.num_rows, len(data), crc32c(data))

    async def describe(self, name: PendingName) -> Description | None:
        """What the batch called ``name`` says about itself, by its first bytes; ``None`` if there is none."""
        key, where = str(name), self.where(name)
        try:
            start = await read_span(self._store, key, slice(0, PEEK_BYTES))
            found = peek_description(start, self._schema, self._collection, object_name=where)
            if found is None:  # it names many parts
                start = (await self._store.get(key)).data
                found = peek_description(start, self._schema, self._collection, object_name=where)
        except ObjectNotFoundError:
            return None
        if found is None:
            raise CorruptionError(f"it ends after {len(start)} bytes", object_name=where)
        return _checked(found, name, where)

    async def look(self, name: PendingName) -> tuple[Description, Pending | None] | None:
        """What `describe` gives, and the whole batch if it is small, by one request; ``None`` if there is none."""
        where = self.where(name)
        try:
            found = await self._store.get(str(name), Span(0, SMALL_BYTES))
        except ObjectNotFoundError:
            return None
        if len(found.data) < SMALL_BYTES:
            batch = await self._decoded(found.data, where)
            return _checked(batch.description, name, where), batch
        description = peek_description(found.data, self._schema, self._collection, object_name=where)
        if description is None:  # it names many parts
            described = await self.describe(name)
            return None if described is None else (described, None)
        return _checked(description, name, where), None

    async def read(self, name: PendingName) -> Pending | None:
        """The batch called ``name``; ``None`` if there is none. Its updates may be in `parts`."""
        try:
            data = (await self._store.get(str(name))).data
        except ObjectNotFoundError:
            return None
        return await self.decoded(name, data)

    async def decoded(self, name: PendingName, data: bytes | memoryview) -> Pending:
        """The batch called ``name``, whose object is ``data``."""
        where = self.where(name)
        found = await self._decoded(data, where)
        _checked(found.description, name, where)
        return found

    async def parts(self, name: PendingName, description: Description) -> AsyncIterator[pa.Table]:
        """The updates of the batch called ``name``, whose ``description`` names parts, one part after another.

        Raises `ObjectNotFoundError` for a part that is missing: the batch may have been collected meanwhile."""
        for place in range(len(description.parts)):
            yield await self.part(name, description, place)

    async def part(self, name: PendingName, description: Description, place: int) -> pa.Table:
        """The updates of one part of the batch called ``name``, whose ``description`` names it. Raises as `parts`."""
        part, wanted = description.parts[place], part_name(name, description, place)
        where, token, number = self.where(wanted), wanted.token, wanted.part
        data = check_bytes((await self._store.get(str(wanted))).data, part.nbytes, part.crc, object_name=where)
        found = await self._decoded(data, where)
        if found.updates is None or (found.description.token, found.description.part) != (token, number):
            raise CorruptionError(f"it is not part {number} of append {token}", object_name=where)
        return found.updates

    async def list(self, writer: str | None = None, *, after: PendingName | None = None) -> AsyncIterator[Listed]:
        """All pending objects, parts included, in the order of their keys: of ``writer``, or of all.

        after: a name that all of them follow. Keys that are no names of pending batches are left out"""
        prefix = names.PENDING_BATCHES if writer is None else names.shard_prefix(writer)
        async for info in self._store.list(prefix, start_after="" if after is None else str(after)):
            name = names.parse_pending(info.key, self._schema.kind)
            if name is not None:
                yield Listed(info.key, name, info.size)

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects of the pending area. Missing ones are no error."""
        await self._store.delete(list(keys))

    def where(self, name: PendingName) -> str:
        """The key of the object called ``name``, as errors name it."""
        return whole_key(self._store, str(name))

    async def _decoded(self, data: bytes | memoryview, where: str) -> Pending:
        def decode() -> Pending:
            return decode_pending(data, self._schema, self._collection, object_name=where)

        return await self._offload.run(decode) if len(data) > OFFLOAD_BYTES else decode()


def part_name(name: PendingName, description: Description, place: int) -> PendingName:
    """The name of one part of the batch called ``name``."""
    part = description.parts[place]
    token = description.token if part.token is None else part.token
    return replace(name, token=token, part=place if part.number is None else part.number)


def _check_named(name: PendingName, description: Description) -> None:
    if not _fits(name, description):
        raise InternalError(f"{name} is no name of a batch from {description.lower} to {description.upper}")


def _checked(description: Description, name: PendingName, where: str) -> Description:
    """``description``, which was read under ``name``, at ``where``."""
    if not _fits(name, description) or (name.part is None) != (description.part is None):
        raise CorruptionError(
            f"it is a batch of {description.writer} from {description.lower} to {description.upper}",
            object_name=where,
        )
    return description


def _fits(name: PendingName, description: Description) -> bool:
    bounds: list[tuple[NamedFrontier | None, Frontier]] = [
        (name.lower, description.lower),
        (name.upper, description.upper),
    ]
    return name.writer == description.writer and all(
        named is None or named == said or names.frontier_name(named) == names.frontier_name(said)
        for named, said in bounds
    )
