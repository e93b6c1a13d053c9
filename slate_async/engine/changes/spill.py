"""Rows that do not fit into the room, put in the order of their sequence numbers on disk: the runs of a merge sort.

A run is what did not fit at one time, in order, cut into chunks; a chunk is a block as SSTs have it, so what comes back
is checked. Runs are in one file that has no name and goes with the process. They are read by the chunk, in the order of
the chunks' lowest sequence numbers: all rows below the one that the next chunk begins with are in memory then.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from functools import partial
from typing import IO, NamedTuple

import numpy as np

from slate_async.codec.columns import Columns, concat
from slate_async.engine.changes.order import in_order, last_cut
from slate_async.errors import CorruptionError
from slate_async.runtime.protocol import Runtime
from slate_async.storage.format.block import decode_block
from slate_async.storage.format.block_encoding import encode_block

ROOM_LIMIT = 1 << 30
"""Rows written together are kept together up to so many bytes; Arrow's 32-bit offsets end at twice that."""
CHUNKS_IN_ROOM = 64
FILE = "a temporary file of sorted changes"


class Chunk(NamedTuple):
    """Rows in the file. ``first``: their lowest sequence number; ``size``: bytes."""

    first: int
    offset: int
    size: int


class Spill:
    """See the module docstring. Runs are added, of rows up to `until`; then ranges are taken.

    sort_memory_bytes: of a range
    sort_spill_bytes: what is kept on disk, about; of more, the highest sequence numbers are given up
    """

    def __init__(self, until: int, sort_memory_bytes: int, sort_spill_bytes: int, runtime: Runtime) -> None:
        self.after = 0
        self.until = until
        self._whole = True
        self._sort_memory_bytes = sort_memory_bytes
        self._sort_spill_bytes = sort_spill_bytes
        self._runtime = runtime
        self._file: IO[bytes] | None = None
        self._end = 0
        self._free: list[tuple[int, int]] = []  # sizes and offsets
        self._chunks: list[Chunk] = []
        self._held: list[Columns] = []

    # ---- runs

    async def add(self, run: Columns) -> None:
        """Keep ``run``, rows in order. Raises `OSError`, after which this is of no use."""
        rows = max(1, len(run) * self._sort_memory_bytes // CHUNKS_IN_ROOM // max(1, run.nbytes))
        for start in range(0, len(run), rows):
            part = run.slice(start, min(start + rows, len(run)))
            stored = await self._runtime.offload.run(partial(encode_block, part))
            offset = self._place(len(stored))
            await self._runtime.blocking.run(partial(self._write, stored, offset))
            self._chunks.append(Chunk(int(part.seqs[0]), offset, len(stored)))
        if sum(chunk.size for chunk in self._chunks) > self._sort_spill_bytes:
            self._give_up()

    def _give_up(self) -> None:
        """Half of what may be kept stays."""
        self._chunks.sort()
        sizes = np.cumsum([chunk.size for chunk in self._chunks])
        kept = max(1, int(np.searchsorted(sizes, self._sort_spill_bytes // 2)))
        if kept < len(self._chunks):
            self.until = max(self._chunks[0].first, self._chunks[kept].first - 1)
            given_up = [chunk for chunk in self._chunks if chunk.first > self.until]
            self._chunks = self._chunks[: len(self._chunks) - len(given_up)]
            self._free += [(self._slot(chunk.size), chunk.offset) for chunk in given_up]

    def _slot(self, size: int) -> int:
        """What a chunk takes in the file, so that others fit into its place: an eighth of a usual one more at most."""
        unit = max(1, self._sort_memory_bytes // CHUNKS_IN_ROOM // 8)
        return -(-size // unit) * unit

    def _place(self, size: int) -> int:
        slot = self._slot(size)
        for number, (free, offset) in enumerate(self._free):
            if free >= slot:
                del self._free[number]
                return offset
        self._end += slot
        return self._end - slot

    def _write(self, stored: bytes, offset: int) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="slate-changes-", buffering=0)  # noqa: SIM115
            weakref.finalize(self, self._file.close)
        written = 0
        while written < len(stored):
            written += os.pwrite(self._file.fileno(), memoryview(stored)[written:], offset + written)

    # ---- ranges

    def begin(self, after: int, until: int, rows: Columns, *, whole: bool) -> None:
        """Rows up to ``after`` were given; ``rows``, in order, and what was added are the others up to ``until``.

        whole: none above that was written together with them"""
        self._chunks.sort()
        self.after, self.until, self._whole = after, until, whole
        self._held = [rows]

    @property
    def over(self) -> bool:
        """Whether all was given."""
        return self.after >= self.until

    async def next(self) -> Columns | None:
        """The rows that come next, up to what is `after` from then on: a place where the write time changes, or the
        end; ``None`` if there are none. Raises `CorruptionError`, `OSError`; may be called again."""
        room = self._sort_memory_bytes
        while True:
            taken = self._lowest(room)
            left = self._chunks[taken:]
            rows = await self._read(self._chunks[:taken])
            stop = int(np.searchsorted(rows.seqs, left[0].first - 1 if left else self.until, side="right"))
            if (left or not self._whole) and room < ROOM_LIMIT:
                stop = last_cut(rows.slice(0, stop))
            if stop or not left:
                break
            room *= 2  # all of it was written in one millisecond, and there is more
        if stop and (left or not self._whole):
            self.after = int(rows.seqs[stop - 1])
        elif self._whole:
            self.after = self.until
        if not left:
            self.until = self.after  # if it was not whole, the others are read again, with what they belong to
        self._chunks = left
        self._held = [rows.slice(stop, len(rows))]
        return rows.slice(0, stop) if stop else None

    async def close(self) -> None:
        """Give the disk back. Else that is done when this is garbage, by the thread that collects it: a large file
        takes milliseconds."""
        if self._file is not None:
            await self._runtime.blocking.run(self._file.close)

    def _lowest(self, room: int) -> int:
        """How many chunks fill ``room``, together with what is in memory: at least one, if there is one."""
        sizes = np.cumsum([sum(rows.nbytes for rows in self._held), *(chunk.size for chunk in self._chunks)])
        return min(len(self._chunks), max(1, int(np.searchsorted(sizes, room))))

    async def _read(self, chunks: list[Chunk]) -> Columns:
        """The rows of ``chunks``, and those in memory, in order."""
        parts = list(self._held)
        for chunk in chunks:
            stored = await self._runtime.blocking.run(partial(self._bytes_of, chunk))
            parts.append(
                await self._runtime.offload.run(partial(decode_block, stored, object_name=FILE, offset=chunk.offset))
            )
        return await self._runtime.offload.run(lambda: in_order(concat(parts)))

    def _bytes_of(self, chunk: Chunk) -> bytes:
        assert self._file is not None
        stored = os.pread(self._file.fileno(), chunk.size, chunk.offset)
        if len(stored) != chunk.size:
            raise CorruptionError("is cut short", object_name=FILE, offset=chunk.offset)
        return stored
