"""Reading one SST: point lookups and scans through the block cache.

Invariants: nothing is returned that was not verified (identity and size of the object, checksums of every section and
block, each block's checksum against the index); metadata is loaded once, and again if the cache had no room for it; a
block is fetched once however many lookups wait for it; where the manifest gives all rows of an SST one sequence number,
nobody sees the stored ones. A missing object is `ObjectNotFoundError` unless the caller knows that it was there.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar
from uuid import UUID
from weakref import ref

from slate_async.codec.columns import Columns
from slate_async.codec.header import HEADER_BYTES, decode_header
from slate_async.errors import CorruptionError, InvalidError
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore, Span
from slate_async.objectstore.sync_read import SYNC_READ_BYTES, read_sync_of
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.runtime.protocol import Offload
from slate_async.storage.format.block import open_block, stored_raw_bytes
from slate_async.storage.format.joined_blocks import decode_blocks
from slate_async.storage.format.raw_block import RawBlock
from slate_async.storage.format.separate_blocks import open_each
from slate_async.storage.format.sst import FOOTER_BYTES, SstFooter, SstMeta, read_footer, read_meta
from slate_async.storage.sst.around import Around
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.fitting import check_rows, raw_bytes_of, stored_blocks
from slate_async.storage.sst.loaded_block import LoadedBlock
from slate_async.storage.sst.override import Override, cache_owner
from slate_async.storage.sst.passing import Passing
from slate_async.storage.sst.pieces import in_pieces
from slate_async.storage.sst.scan import READS_AHEAD, SCAN_READ_AHEAD_BYTES, BlockScan
from slate_async.storage.sst.shares import ReadShares
from slate_async.storage.sst.single_flight import SingleFlight
from slate_async.types import NEEDS_IO, NO_KEYS, NeedsIO, RowHit, RowPage

T = TypeVar("T")

TAIL_BYTES = 64 << 10
"""What opening reads from the end at least. A file no larger is read whole, and its blocks are then cached already."""
OFFLOAD_BYTES = 256 << 10
"""Decoding more raw bytes than this at once happens in a worker thread."""


class MissingError(CorruptionError):
    """An object is not there that was there when the manifest named it. It may be that the manifest has moved on."""


_NO_ROOM = nullcontext()


class SstReader:
    """One SST of ``size`` bytes at ``key``. Belongs to one event loop; holds no connection.

    Small until it is read from: a manifest may name a hundred thousand."""

    __slots__ = (
        "_cache",
        "_database_id",
        "_dropped",
        "_fetching",
        "_flights",
        "_global",
        "_meta",
        "_meta_bytes",
        "_must_exist",
        "_object_id",
        "_offload",
        "_owner",
        "_read_sync",
        "_store",
        "key",
        "nbytes",
        "size",
        "used",
    )

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        *,
        size: int,
        database_id: UUID,
        object_id: bytes,
        cache: BlockCache,
        offload: Offload,
        must_exist: bool = False,
        meta_bytes: int = 0,
        override: Override | None = None,
        fetching: MemoryBudget | None = None,
    ) -> None:
        """``must_exist``: the manifest names the object, so a missing one is `MissingError`. ``meta_bytes``: a guess at
        what lies behind the blocks, so that one request brings it; see `storage.format.sst.likely_meta_bytes`.
        ``override``: of every row, instead of what is stored. ``fetching``: memory for the stored bytes of large
        blocks, from their request until they are decoded."""
        self.key = key
        self.size = size
        self._store = store
        self._read_sync = read_sync_of(store)
        self._database_id = database_id
        self._object_id = object_id
        self._cache = cache
        self._offload = offload
        self._must_exist = must_exist
        self._meta_bytes = meta_bytes
        self._global = override
        self._fetching = fetching
        self._meta: SstMeta | None = None
        self._dropped: ref[SstMeta] | None = None
        self._owner = b""
        self._flights: SingleFlight | None = None
        self.nbytes = 0
        self.used = False

    def drop_index(self) -> None:
        """See `slate_async.storage.sst.cache.KeptIndex`. Reads under way keep it, and so do reads that begin before it
        is collected."""
        self._dropped = None if self._meta is None else ref(self._meta)
        self._meta = None

    def _known(self) -> SstMeta | None:
        """Index, filter and statistics, if they are in memory, or somebody still holds them."""
        return self._meta or (None if self._dropped is None else self._dropped())

    @property
    def loaded(self) -> bool:
        """Whether index, filter and statistics are in memory."""
        return self._meta is not None

    async def load(self) -> SstMeta:
        """Index, filter and statistics; read with one request (two if they are larger than thought) the first time.

        Raises `CorruptionError`, `ObjectNotFoundError`, `UnavailableError`; the next call tries again."""
        meta = self._known()
        if meta is None:
            return await self._once(None, self._load)
        self.used = True
        return meta

    def probe(
        self, key: bytes, key_hash: int, max_seq: int, reading: bool = False, passing: Passing | None = None
    ) -> RowHit | NeedsIO | None:
        """`get` without suspending: `NEEDS_IO` if something it needs is not in memory. With ``reading`` one block may
        be read without waiting and decoded, which takes some ten microseconds; ``passing``: of a call for many keys."""
        meta = self._meta or (None if passing is None else self._known())
        if meta is None:
            return NEEDS_IO
        self.used = True
        number = self._candidate(meta, key, key_hash)
        while number is not None:
            block = self._cache.get(self._owner, number, count_miss=False)
            if block is None and passing is not None and number == passing.number:
                block = passing.block
            if block is None:
                block = self._block_sync(meta, number, passing) if reading else None
                reading = False
                if block is None:
                    return NEEDS_IO
            row = block.find(key, max_seq)
            if 0 <= row < block.rows:
                return block.hit(row)
            number = self._next(meta, number, key) if row >= 0 else None
        return None

    def chain(self, key: bytes, key_hash: int, max_seq: int, most: int, reading: int) -> list[RowHit] | NeedsIO:
        """See `slate_async.engine.read.sources.TableSource.chain`."""
        meta = self._known()
        if meta is None:
            return NEEDS_IO
        found: list[RowHit] = []
        self.used, number = True, self._candidate(meta, key, key_hash)
        while number is not None and len(found) <= most:
            block = self._cache.get(self._owner, number, count_miss=False)
            if block is None and reading:
                block, reading = self._block_sync(meta, number), reading - 1
            if block is None:
                return NEEDS_IO
            number = self._next(meta, number, key) if block.chain(key, max_seq, found) else None
        return NEEDS_IO if len(found) > most else found

    async def get(self, key: bytes, key_hash: int, max_seq: int) -> RowHit | None:
        """The newest version of ``key`` numbered ``max_seq`` or lower, tombstones and expired rows included.
        ``key_hash`` is `slate_async.storage.format.filter.key_hash` of it. Errors as `load`."""
        meta = await self.load()
        number = self._candidate(meta, key, key_hash)
        while number is not None:
            block = await self._block(meta, number)
            row = block.find(key, max_seq)
            if 0 <= row < block.rows:
                return block.hit(row)
            number = self._next(meta, number, key) if row >= 0 else None
        return None

    def around(self, key: bytes, most_rows: int) -> Around | None:
        """The keys around ``key`` whose versions are all in one block, and the block if it is cached; ``None`` if the
        cached index does not decide that, or versions of ``key`` are in several blocks. Never suspends.

        They are of at most ``most_rows`` rows of the block, unless one key has more."""
        meta = self._meta
        number = None if meta is None else meta.index.find(key)
        if meta is None or number is None:
            return None
        start, end = meta.index.whole_keys(number)
        if not start <= key < end:
            return None
        block = self._cache.get(self._owner, number, count_miss=False)
        if block is not None and block.rows > most_rows:
            row = min(block.raw.lower_bound(key), block.rows - 1)  # it may be above all keys of the block
            row -= row % most_rows
            start = max(start, block.raw.key(row))
            if row + most_rows < block.rows:
                end = min(end, block.raw.key(row + most_rows))
        return Around(start, end, block, meta.filter) if start <= key < end else None

    def first_rows(
        self,
        start: bytes | None,
        end: bytes | None,
        count: int,
        max_seq: int,
        now_ms: int,
        reverse: bool,
        whole: bool,
        reading: int = 0,
    ) -> RowPage | None:
        """See `slate_async.engine.read.sources.TableSource.first_rows`."""
        meta = self._known()
        if meta is None:
            return None
        self.used = True
        index = meta.index
        numbers = index.range(start, end)
        pairs: list[tuple[bytes, Any]] = []
        hides = False
        for number in reversed(numbers) if reverse else numbers:
            block = self._cache.get(self._owner, number, count_miss=False)
            if block is None and reading:
                block = self._block_sync(meta, number)
                reading -= 1
            if block is None:
                break
            if reverse and index.continues[number]:  # newer versions of its first key are in the block before
                break
            rows = block.for_scans()
            give, outermost = (rows.last, numbers.start) if reverse else (rows.first, numbers.stop - 1)
            rest = True
            while rest:
                left = count - len(pairs)
                found = give(start, end, left, max_seq, now_ms, whole, number == outermost, self._cache)
                if found is None:
                    return (pairs, hides, False) if pairs else None
                more, some_hide, ended = found
                pairs, hides = pairs + more, hides or some_hide
                if ended or len(pairs) >= count:
                    return pairs, hides, ended
                if more:  # versions of the last key may go on, also in the next block
                    start, end = (start, more[-1][0]) if reverse else (more[-1][0] + b"\0", end)
                rest = bool(more) and some_hide  # where some hide the block may have more
        else:
            return (pairs, hides, True) if pairs else NO_KEYS
        return (pairs, hides, False) if pairs else None

    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        *,
        reverse: bool = False,
        read_ahead_bytes: int = SCAN_READ_AHEAD_BYTES,
        reads_ahead: int = READS_AHEAD,
        fill_cache: bool = True,
    ) -> BlockScan:
        """All versions of the keys in ``[start, end)`` (``None``: unbounded), batch by batch, each batch sorted.

        With ``reverse`` the batches come from the end, the rows of each still ascending. Reads grow up to
        ``read_ahead_bytes`` a request, ``reads_ahead`` requests ahead of the consumer. Errors as `load`."""
        return BlockScan(
            self,
            start,
            end,
            reverse=reverse,
            read_ahead_bytes=read_ahead_bytes,
            reads_ahead=reads_ahead,
            fill_cache=fill_cache,
            cache_bytes=self._cache.capacity_bytes,
            shares=self._cache.shares,
        )

    async def load_blocks(self, numbers: list[int], *, fill_cache: bool) -> list[LoadedBlock]:
        """The blocks ``numbers`` (ascending), neighbours fetched together, none of them fetched if cached."""
        meta = await self.load()
        found: dict[int, LoadedBlock] = {}
        runs: list[list[int]] = []
        for number in numbers:
            if (cached := self._cache.get(self._owner, number)) is not None:
                found[number] = cached
            elif runs and runs[-1][-1] == number - 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        for run in runs:
            found.update(await self._fetch_run(meta, run, fill_cache))
        return [found[number] for number in numbers]

    async def load_pieces(self, numbers: Sequence[int]) -> list[Columns]:
        """The rows of neighbouring blocks as scans want them (`storage.sst.pieces`), with one request, past the
        cache. Errors as `load`."""

        def cut(batches: list[Columns]) -> list[Columns]:
            pieces = in_pieces(batches[0], bool(index.continues[numbers[0]]))
            for later in batches[1:]:  # there is one only of blocks too large to be joined
                pieces += in_pieces(later, True)
            return pieces

        index = (await self.load()).index
        return await self._load_joined(numbers, cut)

    async def load_joined(self, numbers: Sequence[int]) -> list[Columns]:
        """As `load_pieces`, but joined into as few batches as possible in place of cut for scans."""
        return await self._load_joined(numbers, list)

    @property
    def shares(self) -> ReadShares:
        """What its reads may hold."""
        return self._cache.shares

    async def _load_joined(
        self, numbers: Sequence[int], then: Callable[[list[Columns]], list[Columns]]
    ) -> list[Columns]:
        """What ``then`` makes of the rows, in a worker thread."""
        meta = await self.load()
        index = meta.index
        first, length = index.extent(numbers)

        def decode() -> list[Columns]:
            batches = [*decode_blocks(blocks, object_name=self.key)]
            if self._global is not None:
                batches = [*map(self._global.of_rows, batches)]
            if sum(map(len, batches)) != sum(index.rows[number] for number in numbers):
                raise CorruptionError("blocks and index differ in rows", object_name=self.key, offset=first)
            return then(batches)

        async with self._room_for(length):
            blocks = stored_blocks(index, numbers, await self._read(first, length), first)
            raw_bytes = raw_bytes_of(meta, numbers, blocks, self._cache.shares.nbytes)
            async with self._cache.decoding.hold(raw_bytes):
                return await self._offload.run(decode)

    def _candidate(self, meta: SstMeta, key: bytes, key_hash: int) -> int | None:
        if meta.filter is not None and not meta.filter.may_contain(key_hash):
            return None
        return meta.index.find(key)

    def _next(self, meta: SstMeta, number: int, key: bytes) -> int | None:
        return number + 1 if meta.index.continues_with(number + 1, key) else None

    async def _block(self, meta: SstMeta, number: int) -> LoadedBlock:
        cached = self._cache.get(self._owner, number)
        return await self._once(number, lambda: self._fetch(meta, number)) if cached is None else cached

    def _block_sync(self, meta: SstMeta, number: int, passing: Passing | None = None) -> LoadedBlock | None:
        """The block, if the store reads it without waiting and it is not large. It is cached now, unless ``passing``
        wants more than the cache holds."""
        if not self._cache.capacity_bytes:
            return None  # concurrent reads of a block then at least share one fetch
        data = self._read_sync(self.key, meta.index.offsets[number], meta.index.stored_bytes[number], self.size)
        if data is None or stored_raw_bytes(data) > SYNC_READ_BYTES:
            return None
        block = self._decode_one(meta, number, data)
        self._cache.miss()
        if passing is None or passing.fits(self._cache.capacity_bytes, meta):
            self._cache.put(self._owner, number, block)
        else:
            passing.number, passing.block = number, block
        return block

    async def _once(self, name: int | None, fetch: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Fetch block ``name``, or the metadata (``None``), once for all concurrent callers."""
        if self._flights is None:
            self._flights = SingleFlight()
        return await self._flights.run(name, fetch)

    async def _fetch(self, meta: SstMeta, number: int) -> LoadedBlock:
        return (await self._fetch_run(meta, [number], fill_cache=True))[number]

    async def _fetch_run(self, meta: SstMeta, run: list[int], fill_cache: bool) -> dict[int, LoadedBlock]:
        """Neighbouring blocks with one request."""
        first, length = meta.index.extent(run)
        async with self._room_for(length):
            data = self._read_sync(self.key, first, length, self.size) or await self._read(first, length)
            blocks = dict(zip(run, await self._decode(meta, run, data, first), strict=True))
        if fill_cache:
            for number, block in blocks.items():
                self._cache.put(self._owner, number, block)
        return blocks

    def _room_for(self, nbytes: int) -> AbstractAsyncContextManager[None]:
        """Memory for stored bytes from their request until they are decoded, if they are many."""
        if self._fetching is None or nbytes <= SCAN_READ_AHEAD_BYTES:
            return _NO_ROOM
        return self._fetching.hold(nbytes)

    async def _decode(self, meta: SstMeta, run: list[int], data: bytes, base: int) -> list[LoadedBlock]:
        """The blocks of ``run`` in ``data``, which was read at byte ``base``."""
        index = meta.index
        parts = stored_blocks(index, run, data, base)

        def decode() -> list[LoadedBlock]:
            if len(run) == 1 and len(parts[0].data) == len(data):
                return [self._decode_one(meta, run[0], data)]
            blocks = []
            for number, (raw, seen_from) in zip(run, open_each(parts, object_name=self.key), strict=True):
                check_rows(raw.rows, index, number, self.key)
                blocks.append(self._loaded(raw, seen_from))
            if raw_bytes > OFFLOAD_BYTES:  # only scans read so much, and they want more of a block
                for block in blocks:
                    block.prepare()
            return blocks

        raw_bytes = raw_bytes_of(meta, run, parts, self._cache.shares.nbytes)
        if raw_bytes <= OFFLOAD_BYTES:
            return decode()
        async with self._cache.decoding.hold(raw_bytes):
            return await self._offload.run(decode)

    def _decode_one(self, meta: SstMeta, number: int, stored: bytes) -> LoadedBlock:
        at, crc = meta.index.offsets[number], meta.index.crcs[number]
        raw = open_block(stored, object_name=self.key, offset=at, expected_crc=crc)
        check_rows(raw.rows, meta.index, number, self.key)
        return self._loaded(raw)

    def _loaded(self, raw: RawBlock, seen_from: int | None = None) -> LoadedBlock:
        """``raw`` with the numbers that count."""
        if self._global is None:
            return LoadedBlock(raw, seen_from)
        raw.renumber(*self._global)
        return LoadedBlock(raw)

    async def _load(self) -> SstMeta:
        if self.size < HEADER_BYTES + FOOTER_BYTES:
            raise CorruptionError(f"{self.size} bytes are too few for an SST", object_name=self.key)
        start = max(0, self.size - max(TAIL_BYTES, self._meta_bytes))
        tail = await self._read(start, self.size - start)
        footer = read_footer(
            tail, size=self.size, object_name=self.key, database_id=self._database_id, object_id=self._object_id
        )
        if footer.meta_offset < start:
            tail = await self._read(footer.meta_offset, start - footer.meta_offset) + tail
        meta = await self._read_meta(tail, footer)
        if self._global is not None:
            meta = self._global.of_meta(meta)
        owner = cache_owner(self._database_id, self._object_id, self.size, footer, self._global)
        if not start:
            decode_header(tail, object_name=self.key, database_id=self._database_id, object_id=self._object_id)
            await self._keep_whole(meta, owner, tail)
        self._owner, self._meta = owner, meta
        self.nbytes = meta.nbytes
        self._cache.keep_index(self)
        return meta

    async def _keep_whole(self, meta: SstMeta, owner: bytes, data: bytes) -> None:
        """Cache the blocks of an SST that was read whole, unless they hold more than may be decoded or kept."""
        if meta.stats.raw_block_bytes > min(self._cache.shares.nbytes, self._cache.capacity_bytes):
            return
        numbers = list(range(len(meta.index)))
        for number, block in zip(numbers, await self._decode(meta, numbers, data, 0), strict=True):
            self._cache.put(owner, number, block)

    async def _read_meta(self, tail: bytes, footer: SstFooter) -> SstMeta:
        if len(tail) > OFFLOAD_BYTES:
            return await self._offload.run(lambda: read_meta(tail, footer, object_name=self.key))
        return read_meta(tail, footer, object_name=self.key)

    async def _read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, all of them, of an object of the right size."""
        try:
            result = await self._store.get(self.key, Span(offset, length))
        except ObjectNotFoundError as error:
            if self._must_exist:
                raise MissingError("is missing", object_name=self.key) from error
            raise
        except InvalidError as error:
            size = (await self._store.head(self.key)).size
            if size > offset:
                raise  # about the store, not about the object
            raise CorruptionError(
                f"has {size} bytes, {self.size} were written", object_name=self.key, offset=offset
            ) from error
        if result.info.size != self.size:
            raise CorruptionError(
                f"has {result.info.size} bytes, {self.size} were written", object_name=self.key, offset=offset
            )
        if result.offset != offset or len(result.data) != length:
            raise CorruptionError(f"{len(result.data)} bytes came for {length}", object_name=self.key, offset=offset)
        return result.data
