"""From memtable rows to the bytes of a log segment or an SST, without holding up the event loop."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from slate_async.codec.arrays import release_memory
from slate_async.codec.columns import Columns, concat
from slate_async.engine.read.folding import Folding
from slate_async.runtime.freed_memory import LARGE_BYTES, give_back
from slate_async.runtime.protocol import Offload
from slate_async.settings import Compression
from slate_async.storage.format.log_segment import encode_segment
from slate_async.storage.format.ordering import repeated_keys
from slate_async.storage.format.sst import EncodedSst
from slate_async.storage.format.sst_builder import SstBuilder
from slate_async.storage.log.rows import INLINE_SEGMENT_BYTES
from slate_async.storage.memtable import Memtable, convert, sorted_columns

INLINE_BYTES = 32 * 1024
"""Less than this is sorted or encoded on the loop: that takes less time than a hand-over to a thread."""

ROW_BYTES = 16
"""What a row costs to encode besides its keys and values, as if it were so much longer."""

RELEASED_BYTES = 1 << 20
"""After a log segment of so many bytes Arrow's memory is given back, which may take as long as encoding a small one."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """Makes objects of one writer epoch."""

    database_id: UUID
    epoch: int
    block_bytes: int
    compression: Compression
    filter_bits_per_key: int
    offload: Offload

    async def segment(
        self, table: Memtable, start: int, stop: int, *, nbytes: int, log_id: int, manifest_version: int
    ) -> bytes:
        """Rows ``start`` to ``stop``, with ``nbytes`` of keys and values, in write order as one log object."""
        pieces = await convert(table, start, stop)

        def encode() -> bytes:
            encoded = b"".join(
                encode_segment(
                    concat(pieces),
                    database_id=self.database_id,
                    log_id=log_id,
                    epoch=self.epoch,
                    manifest_version=manifest_version,
                    compression=self.compression,
                )
            )
            if nbytes >= RELEASED_BYTES:
                pieces.clear()
                release_memory()
            return encoded

        return (
            encode() if nbytes + ROW_BYTES * (stop - start) < INLINE_SEGMENT_BYTES else await self.offload.run(encode)
        )

    async def sst(
        self, table: Memtable, *, object_id: bytes, manifest_version: int, folding: Folding | None = None
    ) -> EncodedSst:
        """All rows of a frozen table, sorted, as one SST. Operands are folded by ``folding``."""
        builder = SstBuilder(
            database_id=self.database_id,
            object_id=object_id,
            writer_epoch=self.epoch,
            manifest_version=manifest_version,
            block_bytes=self.block_bytes,
            compression=self.compression,
            filter_bits_per_key=self.filter_bits_per_key,
        )

        def add(piece: Columns) -> None:
            folded = None if folding is None else folding.fold(piece, None, repeated_keys(piece.keys))
            builder.add(piece if folded is None else folded)

        async with aclosing(sorted_columns(table, self.offload)) as pieces:
            async for piece in pieces:
                if piece.nbytes < INLINE_BYTES:
                    add(piece)
                else:
                    await self.offload.run(partial(add, piece))
        if table.nbytes < INLINE_BYTES:
            return builder.finish()

        def finish() -> EncodedSst:
            encoded = builder.finish()
            release_memory()
            if encoded.size >= LARGE_BYTES:
                give_back()
            return encoded

        return await self.offload.run(finish)
