"""One SST read whole: header, footer, index, filter and statistics against its blocks, and all of it against what the
manifest says.

Memory: one read of `READ_BYTES` (or a block, if that is larger), and the object's index, filter and sections.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from msgspec import structs

from slate_async.codec.checksum import crc32c
from slate_async.codec.columns import Columns
from slate_async.codec.header import HEADER_BYTES, ObjectHeader, ObjectKind, decode_header
from slate_async.engine.read.covers import NO_COVERS, Covers
from slate_async.errors import CorruptionError, InternalError, InvalidError
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore, Span
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.runtime.protocol import Offload
from slate_async.storage.format.block import decode_block, stored_raw_bytes
from slate_async.storage.format.filter import key_hashes
from slate_async.storage.format.sst import FOOTER_BYTES, SstFooter, SstMeta, read_footer, read_meta
from slate_async.storage.format.sst_builder import check_sorted
from slate_async.storage.format.stats import StatsCollector
from slate_async.storage.manifest.state import SstRef
from slate_async.types import MAX_SEQ, Finding, finding_of

READ_BYTES = 4 << 20
TAIL_BYTES = 64 << 10
COMPARED = ("rows", "tombstones", "first_key", "last_key", "min_seq", "max_seq", "min_expire_ms", "max_expire_ms")
"""What the manifest and an SST's statistics both say."""


@dataclass(frozen=True, slots=True)
class ExpectedSst:
    """An object that should be there. ``refs``: how manifest versions describe it; none for a log object.

    used_up: range deletes that, as these say, hide no row of it any more"""

    store: ObjectStore
    key: str
    size: int
    database_id: UUID
    object_id: bytes
    refs: tuple[SstRef, ...] = ()
    used_up: Covers = NO_COVERS


@dataclass(slots=True)
class CheckedSst:
    """The result. ``missing``: it is not there; then there is no other finding.

    seqs: the lowest and highest sequence number of its rows, if its statistics are sound"""

    findings: list[Finding] = field(default_factory=list)
    missing: bool = False
    blocks: int = 0
    rows: int = 0
    seqs: tuple[int, int] | None = None


async def check_sst(expected: ExpectedSst, offload: Offload, decoding: MemoryBudget) -> CheckedSst:
    """Read the object and compare. ``decoding``: memory for its blocks. Raises `UnavailableError`."""
    checked = CheckedSst()
    try:
        await _check(expected, offload, decoding, checked)
    except ObjectNotFoundError:
        return CheckedSst(missing=True)
    except CorruptionError as error:
        checked.findings.append(finding_of(error))
    except InvalidError as error:  # of a newer release
        checked.findings.append(Finding(expected.key, None, str(error)))
    return checked


async def _check(expected: ExpectedSst, offload: Offload, decoding: MemoryBudget, checked: CheckedSst) -> None:
    key, size = expected.key, expected.size
    found = (await expected.store.head(key)).size
    if found != size:
        raise CorruptionError(f"has {found} bytes, {size} were written", object_name=key, offset=min(found, size))
    if size < HEADER_BYTES + FOOTER_BYTES:
        raise CorruptionError(f"{size} bytes are too few for an SST", object_name=key)
    identity = {"object_name": key, "database_id": expected.database_id, "object_id": expected.object_id}
    header = decode_header(await _read(expected, 0, HEADER_BYTES), **identity)  # type: ignore[arg-type]
    tail = await _read(expected, max(0, size - TAIL_BYTES), min(size, TAIL_BYTES))
    footer = read_footer(tail, size=size, **identity)  # type: ignore[arg-type]
    tail = await _read(expected, footer.meta_offset, size - footer.meta_offset)
    meta = await offload.run(lambda: read_meta(tail, footer, object_name=key))
    checked.findings += _header_against_footer(key, header, footer)
    checked.seqs = (meta.stats.min_seq, meta.stats.max_seq)
    contents = _Contents(meta, key, expected.used_up)
    for read in reads(meta):
        data = await _read(expected, read.offset, read.length)
        async with decoding.hold(contents.largest(data, read)):
            await offload.run(lambda data=data, read=read: contents.add(data, read))  # type: ignore[misc]
    await offload.run(lambda: contents.finish(tail, header))
    checked.findings += contents.findings
    checked.findings += [finding for ref in expected.refs for finding in _ref_against(ref, header, meta)]
    checked.blocks, checked.rows = len(meta.index), contents.rows


async def _read(expected: ExpectedSst, offset: int, length: int) -> bytes:
    result = await expected.store.get(expected.key, Span(offset, length))
    if len(result.data) != length:
        raise CorruptionError(f"{len(result.data)} bytes came for {length}", object_name=expected.key, offset=offset)
    return result.data


class Read(NamedTuple):
    """One request: blocks ``first`` to ``stop`` (exclusive), and the padding up to the next one."""

    offset: int
    length: int
    first: int
    stop: int


def reads(meta: SstMeta, most_bytes: int = READ_BYTES) -> Iterator[Read]:
    """All bytes between header and sections, cut before blocks, about ``most_bytes`` at once."""
    offsets = [*meta.index.offsets[1:], meta.footer.meta_offset]
    start, first = HEADER_BYTES, 0
    for number, end in enumerate(offsets):
        last = number + 1 == len(offsets)
        if last or offsets[number + 1] - start > most_bytes:
            yield Read(start, end - start, first, number + 1)
            start, first = end, number + 1


class _Contents:
    """What the blocks hold, gathered block by block, and at the end compared. CPU work, for a worker thread."""

    def __init__(self, meta: SstMeta, key: str, used_up: Covers) -> None:
        self._meta = meta
        self._key = key
        self._used_up = used_up
        self._stats = StatsCollector()
        self._raw_bytes = 0
        self._body_crc = 0
        self._last: tuple[bytes, int] | None = None
        self._broken = False
        self._unfiltered = 0
        self.findings: list[Finding] = []

    @property
    def rows(self) -> int:
        """Rows read so far."""
        return self._stats.rows

    def largest(self, data: bytes, read: Read) -> int:
        """What the largest of the blocks in ``data`` takes: they are decoded one after another."""
        sizes = (stored_raw_bytes(stored) for _, _, stored in self._stored(data, read))
        return min(max(sizes, default=0), self._meta.stats.raw_block_bytes)

    def _stored(self, data: bytes, read: Read) -> Iterator[tuple[int, int, memoryview]]:
        """Number, offset and bytes of each block of ``read``."""
        index, view = self._meta.index, memoryview(data)
        for number in range(read.first, read.stop):
            at = index.offsets[number]
            yield number, at, view[at - read.offset : at - read.offset + index.stored_bytes[number]]

    def add(self, data: bytes, read: Read) -> None:
        """The bytes of one `Read`."""
        self._body_crc = crc32c(data, self._body_crc)
        index = self._meta.index
        for number, at, stored in self._stored(data, read):
            try:
                columns = decode_block(stored, object_name=self._key, offset=at, expected_crc=index.crcs[number])
            except CorruptionError as error:
                self._broken, self._last = True, None
                self.findings.append(finding_of(error))
                continue
            self._raw_bytes += stored_raw_bytes(stored)
            self._add_block(number, columns, at)

    def _add_block(self, number: int, columns: Columns, at: int) -> None:
        index, first = self._meta.index, columns.keys[0].as_py()
        if len(columns) != index.rows[number]:
            self._say(at, f"block {number} has {len(columns)} rows, the index says {index.rows[number]}")
        if first != index.first_keys[number]:
            self._say(at, f"block {number} does not begin with the key that the index says")
        try:
            check_sorted(columns)
        except InternalError:
            self._say(at, f"block {number} is not sorted")
        if self._last is not None:
            key, seq = self._last
            if (first, -int(columns.seqs[0])) <= (key, -seq):
                self._say(at, f"block {number} does not come after the one before it")
            if bool(index.continues[number]) != (first == key):
                self._say(at, f"the index is wrong on whether block {number} goes on with a key")
        self._last = (columns.keys[-1].as_py(), int(columns.seqs[-1]))
        if hidden := len(columns) - len(self._used_up.visible(columns, MAX_SEQ)):
            self._say(at, f"block {number} has {hidden} rows that a range delete hides; compaction dropped those")
        self._stats.add(columns)
        if self._meta.filter is not None:
            self._unfiltered += int((~self._meta.filter.may_contain_each(key_hashes(columns.keys))).sum())

    def finish(self, tail: bytes, header: ObjectHeader) -> None:
        """Compare with what the sections in ``tail`` and the header say. A damaged block is not reported twice."""
        meta, at = self._meta, self._meta.footer.meta_offset
        if self._unfiltered:
            self._say(at, f"the filter does not know {self._unfiltered} of the keys")
        if self._broken:
            return
        if self._last is not None and self._last[0] != meta.index.last_key:
            self._say(at, "the last key is not the one that the index says")
        counted = self._stats.finish(
            blocks=len(meta.index),
            raw_block_bytes=self._raw_bytes,
            first_key=meta.index.first_key,
            last_key=meta.index.last_key,
        )
        if counted != meta.stats:
            self._say(at, "the statistics are not those of the rows")
        if meta.filter is not None and meta.filter.keys != meta.stats.rows:
            self._say(at, f"the filter was made for {meta.filter.keys} rows, and there are {meta.stats.rows}")
        if not self.findings and crc32c(tail, self._body_crc) != header.body_crc:
            self._say(HEADER_BYTES, "body checksum does not match")

    def _say(self, offset: int, what: str) -> None:
        self.findings.append(Finding(self._key, offset, what))


def _header_against_footer(key: str, header: ObjectHeader, footer: SstFooter) -> Iterator[Finding]:
    if header.kind is not ObjectKind.SST:
        yield Finding(key, 10, f"its header says it is a {header.kind.name}")
    if header.body_bytes != footer.size - HEADER_BYTES:
        yield Finding(key, 0, f"its header says {header.body_bytes} bytes follow, and it has {footer.size} in all")
    if (header.writer_epoch, header.manifest_version) != (footer.writer_epoch, footer.manifest_version):
        yield Finding(key, 0, "header and footer differ in the writer epoch or the manifest version")


def _ref_against(ref: SstRef, header: ObjectHeader, meta: SstMeta) -> Iterator[Finding]:
    if ref.global_seq is not None:
        seqs = {"min_seq": meta.stats.min_seq, "max_seq": meta.stats.max_seq}
        ref = structs.replace(ref, **seqs)  # whatever is stored does not count
    said = {name: (getattr(ref, name), getattr(meta.stats, name)) for name in COMPARED}
    said["writer_epoch"] = (ref.writer_epoch, header.writer_epoch)
    for name, (named, stored) in said.items():
        if named != stored:
            yield Finding(ref.location, None, f"the manifest says {name} is {named!r}, the SST says {stored!r}")


def differing(refs: Sequence[SstRef]) -> tuple[SstRef, ...]:
    """``refs`` without repetition."""
    found: list[SstRef] = []
    for ref in refs:
        if ref not in found:
            found.append(ref)
    return tuple(found)
