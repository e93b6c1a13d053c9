"""Merged batches of one life of a collection: written part by part, read row group by row group.

A batch of one part is one object under the batch's name; a larger one has an index there, which is put last. Names have
an epoch and a token (C23), so putting an object again changes nothing.

Invariants: at most two parts are in memory while a batch is written. Nothing that is read is decoded before it was
checked against what the version says of the batch.

Rules C15, C23 and C30 of collections.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from slate_async.codec.arrays import number_array
from slate_async.codec.checksum import crc32c
from slate_async.collections.codec.index import Index, decode_index, encode_index
from slate_async.collections.codec.merged import Encoded, MergedEncoder, group_slices
from slate_async.collections.codec.merged_read import (
    END_BYTES,
    MAGIC,
    MergedFile,
    footer_of,
    hashed_upper,
    section_span,
    with_sections,
)
from slate_async.collections.codec.parts import MAX_PARTS, PartRef, check_bytes
from slate_async.collections.core import names
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.garbage import MergedFile as ListedFile
from slate_async.collections.core.garbage import PendingEnds
from slate_async.collections.core.names import HashedFrontier, MergedName
from slate_async.collections.core.slices import one_batch
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.store.spans import read_span
from slate_async.errors import CorruptionError, InvalidError
from slate_async.objectstore.prefixed import whole_key
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore
from slate_async.runtime.concurrent import ahead, map_bounded
from slate_async.runtime.protocol import Offload

T = TypeVar("T")
PART_BYTES = 32 << 20
"""A part ends with the row group that takes it there."""
FETCH_BYTES = 8 << 20
"""Row groups that follow one another are read together, up to so many bytes."""
FILES_AT_ONCE = 16
"""Whose names do not say where they end."""


class Stored(NamedTuple):
    """What a version says of a batch that was written: see `MergedBatch`."""

    rows: int
    nbytes: int
    crc: int
    parts: int


class MergedWriter:
    """Writes one batch of sorted updates. It is of no use after an error, or after a cancelled call."""

    def __init__(
        self,
        store: ObjectStore,
        schema: UpdateSchema,
        name: MergedName,
        offload: Offload,
        *,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._store = store
        self._schema = schema
        self._name = name
        self._offload = offload
        self._part_bytes = part_bytes
        self._hashed_upper = names.hashed_text(name.upper)
        self._encoder = MergedEncoder(schema, self._hashed_upper)
        self._waiting: Encoded | None = None  # the first part, until it is known not to be the only one
        self._parts: list[PartRef] = []
        self._edges: list[pa.RecordBatch] = []
        self._last: pa.RecordBatch | None = None

    async def add(self, updates: pa.RecordBatch) -> None:
        """Append ``updates``; none sorts before the last one. Raises `UnavailableError`, `InvalidError`."""
        for piece in group_slices(updates):
            if self._encoder.nbytes >= self._part_bytes:
                await self._end_part()
            if not self._encoder.rows:
                await self._begin_part(piece)
            self._last = self._edge(piece, piece.num_rows - 1)
            await self._offload.run(partial(self._encoder.add, piece))

    async def finish(self) -> Stored:
        """Put what is left. Raises as `add`."""
        await self._end_part()
        if self._waiting is not None:
            data, part = self._waiting.data, self._waiting.part
            await self._store.put(str(self._name), memoryview(data))
            return Stored(part.rows, part.nbytes, part.crc, 0)
        if not self._parts:
            raise InvalidError(f"{self._name} has no rows: a batch without rows has no object")
        edges = one_batch(self._edges, self._schema.data)
        index = Index(tuple(self._parts), edges, self._hashed_upper)
        data = await self._offload.run(partial(encode_index, index))
        await self._store.put(str(self._name), data)
        return Stored(index.rows, len(data), crc32c(data), len(self._parts))

    async def _begin_part(self, updates: pa.RecordBatch) -> None:
        """There is one more part than are known: the first one is not the only one."""
        self._edges.append(self._edge(updates, 0))
        if self._waiting is not None:
            await self._put_part(self._waiting)
            self._waiting = None

    async def _end_part(self) -> None:
        """Put the part that is open, unless it is the first one: that waits."""
        if self._last is None:
            return
        encoded = await self._offload.run(self._encoder.finish)
        self._edges.append(self._last)
        self._encoder, self._last = MergedEncoder(self._schema, self._hashed_upper), None
        if self._parts:
            await self._put_part(encoded)
        else:
            self._waiting = encoded

    async def _put_part(self, encoded: Encoded) -> None:
        if len(self._parts) == MAX_PARTS:
            raise InvalidError(f"{self._name} has more than {MAX_PARTS} parts")
        await self._store.put(str(replace(self._name, part=len(self._parts))), memoryview(encoded.data))
        self._parts.append(encoded.part)

    def _edge(self, updates: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """A copy: a slice would keep all of ``updates`` in memory."""
        return updates.select(self._schema.data.names).take(number_array(np.array([row])))


class MergedSource:
    """A merged batch that is read.

    parts: its objects, in the order of their rows
    edges: the first and last data of each part, see `Index`; ``None`` if it is one object
    """

    def __init__(
        self,
        store: ObjectStore,
        schema: UpdateSchema,
        batch: MergedBatch,
        offload: Offload,
        parts: Sequence[PartRef],
        edges: pa.RecordBatch | None,
        whole: memoryview | None,
    ) -> None:
        self._store = store
        self._schema = schema
        self._batch = batch
        self._offload = offload
        self.parts = parts
        self.edges = edges
        self._whole = whole
        self._files: dict[int, MergedFile] = {}

    @classmethod
    async def open(cls, store: ObjectStore, schema: UpdateSchema, batch: MergedBatch, offload: Offload) -> MergedSource:
        """Read the batch's object if it is one, else its index. A batch without rows has none.

        Raises `ObjectNotFoundError`, which the reader's hold explains (C15), `CorruptionError`, `UnavailableError`."""
        if not batch.rows:
            return cls(store, schema, batch, offload, (), None, None)
        data, where = memoryview((await store.get(batch.name)).data), whole_key(store, batch.name)
        if not batch.parts:
            named = PartRef(batch.rows, batch.nbytes, batch.crc)
            part = await offload.run(partial(with_sections, data, named, object_name=where))
            return cls(store, schema, batch, offload, (part,), None, data)

        def decoded() -> Index:
            check_bytes(data, batch.nbytes, batch.crc, object_name=where)
            return decode_index(data, schema, object_name=where)

        index = await offload.run(decoded)
        if (index.rows, len(index.parts)) != (batch.rows, batch.parts):
            raise CorruptionError(f"{index.rows} updates in place of {batch.rows}", object_name=where)
        return cls(store, schema, batch, offload, index.parts, index.edges, None)

    async def file(self, part: int) -> MergedFile:
        """One part, of which row groups can be read. Raises as `open`."""
        if part not in self._files:
            ref, where = self.parts[part], whole_key(self._store, self.key(part))
            footer = await self._bytes(part, section_span(ref, -1))
            self._files[part] = MergedFile(footer, ref, self._schema, object_name=where)
        return self._files[part]

    async def read(
        self, part: int, groups: range | None = None, columns: Sequence[str] | None = None
    ) -> AsyncGenerator[pa.Table]:
        """The updates of a part, one row group after another: of all ``groups``, which follow one another.

        Raises as `open`."""
        async with aclosing(self.read_as(_as_it_is, part, groups, columns)) as tables:
            async for table in tables:
                yield table

    async def read_as(
        self,
        make: Callable[[pa.Table], T],
        part: int,
        groups: range | None = None,
        columns: Sequence[str] | None = None,
        *,
        at_once: int = 1,
    ) -> AsyncGenerator[T]:
        """As `read`, what ``make`` gives of each row group, in the worker thread that decodes it.

        at_once: so many are decoded side by side, as far as there are threads; one more may wait for the caller"""
        file = await self.file(part)

        def decoded(piece: tuple[int, memoryview]) -> Coroutine[Any, Any, T]:
            return self._offload.run(partial(_decoded, make, file, *piece, columns))

        async with aclosing(self._pieces(file, part, range(len(file.groups)) if groups is None else groups)) as pieces:
            if at_once == 1:
                async for piece, _ in pieces:
                    yield await decoded(piece)
                return
            async with aclosing(ahead(decoded, pieces, limit=at_once, budget=at_once + 1)) as results:
                async for result in results:
                    yield result

    async def _pieces(
        self, file: MergedFile, part: int, wanted: range
    ) -> AsyncGenerator[tuple[tuple[int, memoryview], int]]:
        """Row groups and their bytes, each of weight 1."""
        while wanted:
            count = self._fetched(file, wanted)
            first = file.span(wanted[0]).start
            data = await self._bytes(part, slice(first, file.span(wanted[count - 1]).stop))
            for group in wanted[:count]:
                place = file.span(group)
                yield (group, data[place.start - first : place.stop - first]), 1
            wanted = wanted[count:]

    async def updates(self) -> AsyncGenerator[pa.Table]:
        """All updates, one row group after another. Raises as `open`."""
        for part in range(len(self.parts)):
            async with aclosing(self.read(part)) as tables:
                async for table in tables:
                    yield table

    def key(self, part: int) -> str:
        """The key of a part's object."""
        return self._batch.name if self.edges is None else f"{self._batch.name}.p{part:05}"

    def _fetched(self, file: MergedFile, groups: range) -> int:
        """How many of ``groups`` are read with the next request: one at least."""
        count, nbytes = 0, 0
        for group in groups:
            nbytes += file.groups[group].nbytes
            if count and nbytes > FETCH_BYTES:
                break
            count += 1
        return count

    async def _bytes(self, part: int, place: slice) -> memoryview:
        if self._whole is not None:
            return self._whole[place]
        return memoryview(await read_span(self._store, self.key(part), place))


def _as_it_is(table: pa.Table) -> pa.Table:
    return table


def _decoded(
    make: Callable[[pa.Table], T], file: MergedFile, group: int, data: memoryview, columns: Sequence[str] | None
) -> T:
    return make(file.read(group, data, columns))


async def list_merged(store: ObjectStore, schema: UpdateSchema) -> list[ListedFile]:
    """All merged objects, parts included, with the batch that each belongs to. Other keys are left out."""
    found = []
    async for info in store.list(names.MERGED_BATCHES):
        name = names.parse_merged(info.key, schema.kind)
        if name is not None:
            batch = str(replace(name, part=None))
            found.append(ListedFile(info.key, batch, name.epoch, name.upper, info.size))
    return found


async def read_uppers(store: ObjectStore, schema: UpdateSchema, files: Sequence[ListedFile]) -> list[ListedFile]:
    """``files`` with what they say themselves, where a name has a hash in place of the upper (C30). One that is missing
    or damaged stays as it is. Raises `UnavailableError`."""

    async def one(file: ListedFile) -> ListedFile:
        if not isinstance(file.upper, HashedFrontier):
            return file
        try:
            text = await _hashed_upper(store, schema, file)
        except (ObjectNotFoundError, CorruptionError, InvalidError):
            return file
        upper = None if text is None else names.from_hashed_text(text, file.upper, schema.kind)
        return file if upper is None else replace(file, upper=upper)

    return await map_bounded(one, files, FILES_AT_ONCE)


async def _hashed_upper(store: ObjectStore, schema: UpdateSchema, file: ListedFile) -> str | None:
    where = whole_key(store, file.key)
    end = await read_span(store, file.key, slice(max(file.nbytes - END_BYTES, 0), file.nbytes))
    if end[-len(MAGIC) :] == MAGIC:
        footer = await read_span(store, file.key, footer_of(end, file.nbytes, object_name=where))
        return hashed_upper(footer, object_name=where)
    return decode_index((await store.get(file.key)).data, schema, object_name=where).hashed_upper


async def first_merged(store: ObjectStore, schema: UpdateSchema) -> str | None:
    """The name of a merged object that is there, if any is."""
    async for info in store.list(names.MERGED_BATCHES):
        if names.parse_merged(info.key, schema.kind) is not None:
            return info.key
    return None


async def delete_merged(store: ObjectStore, keys: Iterable[str]) -> None:
    """Delete merged objects. Missing ones are no error."""
    await store.delete(list(keys))


def lost_version(collection: str, lost: ListedFile, head: Area, ends: PendingEnds) -> CorruptionError:
    """C30: for those who found that no version names ``lost``, and that one did."""
    what = (
        f"no version names it, and what is pending beyond {head.upper}, the upper of version {head.version}, ends at"
        f" {ends.reach}: a later version was lost; restore it"
    )
    return CorruptionError(what, object_name=f"{lost.batch} of {collection}")
