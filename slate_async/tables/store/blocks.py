"""Blocks and delete files of one table in its object store.

A small block is one request; of a larger one the footer is read first, which does not change and is kept, and then what
a scan needs of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from slate_async.errors import CorruptionError
from slate_async.objectstore.protocol import ObjectStore, Span
from slate_async.objectstore.ranges import read_spans
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.protocol import Runtime
from slate_async.tables.codec.block import EncodedBlock, encode_block
from slate_async.tables.codec.block_read import Footer, decode_columns, decode_footer, spans_of
from slate_async.tables.codec.deletes import decode_deletes, described, encode_deletes
from slate_async.tables.codec.merged_block import MergedBlock
from slate_async.tables.core.names import CHAIN, DATA, DELETES, block_key, delete_key, parsed_base
from slate_async.tables.core.row_ids import RowIds
from slate_async.tables.core.schema import TableSchema
from slate_async.tables.store.puts import put_new

KEPT_FOOTERS: Final = 1_024
KEPT_DELETES: Final = 64
DECODED_AT_ONCE: Final = 2
"""Row groups of a block: see the decision that a read is decoded by two threads."""
WHOLE_BYTES: Final = 1 << 20
"""A block of so many bytes is read whole."""


class Blocks:
    """See the module docstring. ``store``: the folder of the table."""

    def __init__(self, store: ObjectStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._footers: OrderedDict[str, Footer] = OrderedDict()
        self._deletes: OrderedDict[str, RowIds] = OrderedDict()

    async def put(self, rows: pa.Table, schema: TableSchema, base: int) -> pa.Table:
        """Store ``rows``; returns what a link says of the block. ``base``: the version that the caller had read."""
        encoded: EncodedBlock = await self._runtime.offload.run(lambda: encode_block(rows, schema))
        key = await put_new(self._store, memoryview(encoded.data), lambda token: block_key(base, token), self._runtime)
        return encoded.under(key)

    async def put_merged(self, block: MergedBlock, base: int) -> pa.Table:
        """Store a block that a merge made; returns what a link says of it."""
        encoded = await self._runtime.offload.run(block.finish)
        key = await put_new(self._store, memoryview(encoded.data), lambda token: block_key(base, token), self._runtime)
        return encoded.under(key)

    async def put_deletes(self, ids: RowIds, base: int) -> pa.Table:
        """Store the row ids ``ids``, of which there is one; returns what a link says of the file."""
        data = await self._runtime.offload.run(lambda: encode_deletes(ids))
        key = await put_new(self._store, memoryview(data), lambda token: delete_key(base, token), self._runtime)
        return described(key, ids, data)

    async def read_deletes(self, file: Mapping[str, Any]) -> RowIds:
        """The row ids of ``file``, a row as `slate_async.tables.core.chain.DELETE_FILE` has it. Raises as `read`."""
        known = self._deletes.get(file["key"])
        if known is None:
            data = (await self._store.get(file["key"])).data
            known = await self._runtime.reading.run(lambda: decode_deletes(data, file))
        self._deletes[file["key"]] = known
        self._deletes.move_to_end(file["key"])
        while len(self._deletes) > KEPT_DELETES:
            self._deletes.popitem(last=False)
        return known

    async def copy(self, block: pa.Table, base: int) -> pa.Table:
        """The same block under a new name. Raises `ObjectNotFoundError` if it was deleted."""
        data = (await self._store.get(block.column("key")[0].as_py())).data
        key = await put_new(self._store, data, lambda token: block_key(base, token), self._runtime)
        return block.set_column(0, block.schema.field("key"), pa.array([key], pa.string()))

    async def listed(self) -> dict[str, int]:
        """All objects of the table besides heads, by name, with their sizes. Foreign ones are left out."""
        found = {}
        for folder in (CHAIN, DATA, DELETES):
            async for info in self._store.list(folder):
                if parsed_base(info.key) is not None:
                    found[info.key] = info.size
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that are missing are no error."""
        await self._store.delete(keys)

    async def read(
        self,
        block: Mapping[str, Any],
        schema: TableSchema,
        columns: Sequence[str],
        groups: Callable[[Footer], Sequence[int]],
    ) -> list[tuple[int, pa.Table]]:
        """Those row groups that ``groups`` names by the footer: the number of each one's first row, and the columns.

        block: a row as `slate_async.tables.core.chain.BLOCK` has it, written by ``schema``
        columns: as the block calls them; of none, tables without columns

        Raises `ObjectNotFoundError`, `CorruptionError`."""
        whole = await self._whole(block) if block["size"] <= WHOLE_BYTES and columns else None
        footer = await self.footer(block, schema, whole)
        starts = [0]
        for group in range(footer.groups):
            starts.append(starts[-1] + footer.metadata.row_group(group).num_rows)
        wanted = groups(footer)
        spans = [spans_of(footer, group, columns) for group in wanted]
        parts = await self._bytes(block, whole, [span for of_group in spans for span in of_group])
        if not columns:
            return [(starts[group], pa.table({})) for group in wanted]
        given = iter(parts)
        work = [
            _decoder(footer, group, columns, of_group, [next(given) for _ in of_group])
            for group, of_group in zip(wanted, spans, strict=True)
        ]
        tables = await map_bounded(self._runtime.reading.run, work, DECODED_AT_ONCE)
        return [(starts[group], table) for group, table in zip(wanted, tables, strict=True)]

    async def footer(self, block: Mapping[str, Any], schema: TableSchema, whole: memoryview | None = None) -> Footer:
        """The footer of ``block``, of which ``whole`` has the bytes if they were read. Raises as `read`."""
        footer = self._footers.get(block["key"])
        if footer is None:
            data = await self._bytes(block, whole, [_footer_span(block)])
            footer = await self._runtime.reading.run(lambda: decode_footer(data[0], block, schema))
            self._keep(footer)
        else:
            self._footers.move_to_end(footer.key)
        return footer

    async def _whole(self, block: Mapping[str, Any]) -> memoryview:
        data = (await self._store.get(block["key"])).data
        if len(data) != block["size"]:
            raise CorruptionError(
                f"it has {len(data)} bytes, and {block['size']} were written", object_name=block["key"]
            )
        return memoryview(data)

    async def _bytes(self, block: Mapping[str, Any], whole: memoryview | None, spans: Sequence[Span]) -> list[bytes]:
        if not spans:
            return []
        if whole is not None:
            return [bytes(whole[span.offset : span.offset + span.length]) for span in spans]
        return await read_spans(self._store, block["key"], spans)

    def _keep(self, footer: Footer) -> None:
        self._footers[footer.key] = footer
        while len(self._footers) > KEPT_FOOTERS:
            self._footers.popitem(last=False)


def _footer_span(block: Mapping[str, Any]) -> Span:
    return Span(max(0, block["size"] - block["footer_size"]), block["footer_size"])


def _decoder(
    footer: Footer, group: int, columns: Sequence[str], spans: Sequence[Span], parts: Sequence[bytes]
) -> Callable[[], pa.Table]:
    return lambda: decode_columns(footer, group, columns, spans, parts)
