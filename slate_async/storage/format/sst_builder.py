"""Building an SST from sorted rows, block by block.

Invariant: where blocks are cut, and which are compressed, depends on the rows alone, not on how they were handed to
`SstBuilder.add`.
"""

from __future__ import annotations

from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from slate_async.codec.arrays import binary_buffers, mask_of
from slate_async.codec.checksum import crc32c
from slate_async.codec.columns import NO_EXPIRY, Columns, concat
from slate_async.codec.compression import Compression, Packer
from slate_async.codec.header import HEADER_BYTES, ObjectHeader, ObjectKind, encode_header
from slate_async.errors import InternalError, InvalidError
from slate_async.storage.format.block import ROW_OVERHEAD_BYTES, stored_crc, stored_raw_bytes
from slate_async.storage.format.block_encoding import encode_blocks
from slate_async.storage.format.filter import MAX_BITS_PER_KEY, build_filter, key_hashes
from slate_async.storage.format.index import BlockEntry, encode_index
from slate_async.storage.format.sst import (
    FOOTER_BYTES,
    MUST_UNDERSTAND,
    SECTION_FILTER,
    SECTION_INDEX,
    SECTION_STATS,
    EncodedSst,
    Section,
    SstFooter,
    encode_directory,
    encode_footer,
)
from slate_async.storage.format.stats import SstStats, StatsCollector, encode_stats


class SstBuilder:
    """Collects sorted rows and makes one SST of them. Use it once, from one thread at a time.

    block_bytes: a block is closed before the row that would take it past this many raw bytes; a larger row
    stands alone
    filter_bits_per_key: 0 for no filter
    object_id: 16 bytes: a ULID, or `log_object_id` when the SST is a log object
    """

    def __init__(
        self,
        *,
        database_id: UUID,
        object_id: bytes,
        writer_epoch: int,
        manifest_version: int,
        block_bytes: int = 64 << 10,
        compression: str | Compression = Compression.NONE,
        filter_bits_per_key: int = 10,
    ) -> None:
        if block_bytes < 1:
            raise InvalidError(f"block_bytes must be positive, not {block_bytes}")
        if not 0 <= filter_bits_per_key <= MAX_BITS_PER_KEY:
            raise InvalidError(f"filter_bits_per_key must be 0 to {MAX_BITS_PER_KEY}, not {filter_bits_per_key}")
        self._identity = (database_id, object_id, writer_epoch, manifest_version)
        self._block_bytes = block_bytes
        self._packer = Packer(compression)
        self._filter_bits = filter_bits_per_key
        self._body: list[bytes] = []
        self._body_crc = 0
        self._at = HEADER_BYTES
        self._raw_bytes = 0
        self._entries: list[BlockEntry] = []
        self._hashes: list[npt.NDArray[np.uint64]] = []
        self._stats = StatsCollector()
        self._pending: list[Columns] = []
        self._pending_bytes = 0
        self._last: tuple[bytes, int] | None = None
        self._last_block_key: bytes | None = None
        self._finished = False

    @property
    def rows(self) -> int:
        """Rows added so far."""
        return self._stats.rows

    @property
    def size_estimate(self) -> int:
        """Bytes of the object so far, less its index and filter; rows not yet in a block count uncompressed."""
        return self._at + self._pending_bytes

    def add(self, columns: Columns) -> None:
        """Append rows that come after all rows added before. Raises `InternalError` when they do not."""
        if self._finished:
            raise InternalError("this SST is finished")
        if not len(columns):
            return
        self._check_order(columns)
        self._stats.add(columns)
        if self._filter_bits:
            self._hashes.append(key_hashes(columns.keys))
        ends, rows = raw_ends(columns), len(columns)
        whole: list[int] = []
        first = start = base = 0
        while (stop := self._block_end(ends, start, base)) < rows:
            if self._pending:
                self._close_pending(columns.slice(start, stop))
                first = stop
            else:
                whole.append(stop)
            start, base = stop, int(ends[stop - 1]) if stop else 0
        if whole:
            self._add_blocks(columns.slice(first, start), [stop - first for stop in whole])
        self._pending.append(columns.slice(start, rows))
        self._pending_bytes += int(ends[-1]) - base

    def _block_end(self, ends: npt.NDArray[np.int64], start: int, base: int) -> int:
        """Where the block ends that holds what is pending and the rows from ``start``, the raw bytes before which are
        ``base``, on; ``len(ends)`` if they leave it room."""
        stop = int(np.searchsorted(ends, base + self._block_bytes - self._pending_bytes, "right"))
        return stop if self._pending else max(stop, start + 1)

    def finish(self) -> EncodedSst:
        """The object. Raises `InvalidError` when no row was added."""
        if self._pending:
            self._close_pending()
        if self._last is None or self._finished:
            raise InvalidError("an SST needs at least one row, and is finished once")
        self._finished = True
        stats = self._stats.finish(
            blocks=len(self._entries),
            raw_block_bytes=self._raw_bytes,
            first_key=self._entries[0].first_key,
            last_key=self._last[0],
        )
        self._add_sections(stats)
        database_id, object_id, epoch, manifest_version = self._identity
        header = ObjectHeader(
            ObjectKind.SST,
            database_id,
            object_id,
            epoch,
            self._at - HEADER_BYTES,
            manifest_version,
            self._body_crc,
        )
        return EncodedSst([encode_header(header), *self._body], self._at, stats, header)

    def _add_sections(self, stats: SstStats) -> None:
        meta_offset = self._at
        hashes = np.concatenate(self._hashes) if self._hashes else np.empty(0, np.uint64)
        sections: list[Section] = []
        for section_id, flags, data in (
            (SECTION_FILTER, 0, build_filter(hashes, self._filter_bits)),
            (SECTION_INDEX, MUST_UNDERSTAND, encode_index(self._entries, stats.last_key)),
            (SECTION_STATS, MUST_UNDERSTAND, encode_stats(stats)),
        ):
            if data:
                sections.append(Section(section_id, flags, self._at, len(data), crc32c(data)))
                self._append(data)
        directory = encode_directory(sections)
        directory_offset = self._at
        self._append(directory)
        database_id, object_id, epoch, manifest_version = self._identity
        footer = SstFooter(
            database_id,
            object_id,
            epoch,
            manifest_version,
            self._at + FOOTER_BYTES,
            meta_offset,
            directory_offset,
            len(directory),
            crc32c(directory),
        )
        self._append(encode_footer(footer))

    def _append(self, data: bytes) -> None:
        """Add to the body, padded; its checksum grows with it, while the bytes are still in the processor's cache."""
        for part in (data, bytes(-len(data) % 8)):
            if part:
                self._body.append(part)
                self._at += len(part)
                self._body_crc = crc32c(part, self._body_crc)

    def _close_pending(self, *more: Columns) -> None:
        """A block of the pending rows, and of ``more``."""
        rows = concat([part for part in (*self._pending, *more) if len(part)])
        self._pending, self._pending_bytes = [], 0
        self._add_blocks(rows, [len(rows)])

    def _add_blocks(self, rows: Columns, stops: list[int]) -> None:
        """Blocks of all of ``rows`` that end before the rows ``stops``."""
        start, keys = 0, rows.keys
        for stop, stored in zip(stops, encode_blocks(rows, stops, self._packer), strict=True):
            first_key: bytes = keys[start].as_py()
            continues = first_key == self._last_block_key
            self._entries.append(
                BlockEntry(self._at, len(stored), stop - start, stored_crc(stored), first_key, continues)
            )
            self._last_block_key = keys[stop - 1].as_py()
            self._raw_bytes += stored_raw_bytes(stored)
            self._append(stored)
            start = stop

    def _check_order(self, columns: Columns) -> None:
        if self._last is not None:
            first = (columns.keys[0].as_py(), -int(columns.seqs[0]))
            if first <= (self._last[0], -self._last[1]):
                raise InternalError(f"rows for an SST are out of order at key {first[0][:64]!r}")
        check_sorted(columns)
        self._last = (columns.keys[-1].as_py(), int(columns.seqs[-1]))


def check_sorted(columns: Columns) -> None:
    """Raise `InternalError` unless keys rise and, for one key, sequence numbers fall, both strictly."""
    keys, rows = columns.keys, len(columns)
    if rows < 2:
        return
    before, after = keys.slice(0, rows - 1), keys.slice(1)
    rising = pc.less(before, after)
    if pc.all(rising).as_py():
        return
    same = mask_of(pc.equal(before, after))
    falling = columns.seqs[1:] < columns.seqs[:-1]
    wrong = ~(mask_of(rising) | (same & falling))
    if wrong.any():
        at = int(np.argmax(wrong)) + 1
        raise InternalError(f"rows for an SST are out of order at key {keys[at].as_py()[:64]!r}")


def raw_ends(columns: Columns) -> npt.NDArray[np.int64]:
    """For each row about how many raw bytes all rows up to and including it take."""
    keys, _ = binary_buffers(columns.keys)
    values, _ = binary_buffers(columns.values)
    ends = keys[1:].astype(np.int64) + values[1:] + ROW_OVERHEAD_BYTES * np.arange(1, len(columns) + 1)
    if columns.expire_ms is not None:
        ends += 8 * np.cumsum(columns.expire_ms != NO_EXPIRY)
    return ends - (int(keys[0]) + int(values[0]))
