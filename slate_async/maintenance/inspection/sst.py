"""One SST: what its header, footer, statistics and index say. Blocks are not read, only what tells their size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from slate_async.codec.header import HEADER_BYTES, OBJECT_ID_BYTES, ObjectHeader, peek_header
from slate_async.engine.stored_database import StoredDatabase
from slate_async.errors import CorruptionError, NotFoundError
from slate_async.maintenance.inspection.range_deletes import count_over
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore, Span
from slate_async.objectstore.ranges import read_spans
from slate_async.storage.format.block import TRAILER_BYTES, stored_codec, stored_raw_bytes
from slate_async.storage.format.sst import FOOTER_BYTES, SstFooter, SstMeta, read_footer, read_meta
from slate_async.storage.format.stats import SstStats
from slate_async.storage.log.names import PREFIX as LOG_PREFIX
from slate_async.storage.manifest.state import ManifestState, SstRef
from slate_async.storage.sst.locate import SstOpener
from slate_async.storage.sst.names import SST_PREFIX, parse_sst_key


@dataclass(frozen=True, slots=True)
class BlockInspection:
    """One block. ``raw_bytes``: before compression by ``codec``."""

    first_key: bytes
    rows: int
    offset: int
    stored_bytes: int
    raw_bytes: int
    codec: str
    continues: bool


@dataclass(frozen=True, slots=True)
class SstInspection:
    """One SST.

    named: what the head says of it; ``None`` if that does not name it
    range_deletes: how many of the head may hide rows of it
    filter_bytes, filter_bits_per_key: 0 if it has none that this release knows
    """

    key: str
    named: SstRef | None
    header: ObjectHeader
    footer: SstFooter
    stats: SstStats
    range_deletes: int
    filter_bytes: int
    filter_bits_per_key: float
    blocks: tuple[BlockInspection, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    store: ObjectStore
    key: str
    named: SstRef | None
    range_deletes: int = 0


async def inspect_sst(database: StoredDatabase, wanted: str, ssts: Callable[[UUID], SstOpener]) -> SstInspection:
    """The SST with key or object id (32 hex digits) ``wanted``, named by the head or not.

    Raises `InvalidError` if there is none, `CorruptionError` if it is damaged, `UnavailableError`."""
    state = await database.head()
    found = await _find(database, state, wanted, ssts(state.database_id))
    try:
        return await _inspect(found, database)
    except ObjectNotFoundError as error:
        raise NotFoundError(f"there is no SST {wanted} here; `inspect runs` names those there are") from error


async def _find(database: StoredDatabase, state: ManifestState, wanted: str, opener: SstOpener) -> _Found:
    object_id = _object_id(wanted)
    for sst in state.ssts():
        if wanted == sst.location or object_id == sst.object_id:
            count = count_over(state.range_deletes or (), [sst])
            return _Found(opener.store_of(sst, state.parents), sst.location, sst, count)
    if object_id is not None:
        async for info in database.store.list(SST_PREFIX):
            name = parse_sst_key(info.key)
            if name is not None and name.object_id == object_id:
                return _Found(database.store, info.key, None)
    elif wanted.startswith((SST_PREFIX, LOG_PREFIX)):
        return _Found(database.store, wanted, None)
    raise NotFoundError(
        f"there is no SST {wanted!r} here; name a key (sst/…, log/…) or an object id of 32 hexadecimal digits, as"
        " `inspect runs` shows them"
    )


def _object_id(text: str) -> bytes | None:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        return None
    return found if len(found) == OBJECT_ID_BYTES else None


async def _inspect(found: _Found, database: StoredDatabase) -> SstInspection:
    store, key = found.store, found.key
    size = (await store.head(key)).size
    if size < HEADER_BYTES + FOOTER_BYTES:
        raise CorruptionError(f"{size} bytes are too few for an SST", object_name=key)
    header = peek_header((await store.get(key, Span(0, HEADER_BYTES))).data, object_name=key)
    tail = (await store.get(key, Span(size - FOOTER_BYTES, FOOTER_BYTES))).data
    footer = read_footer(tail, size=size, object_name=key, database_id=header.database_id, object_id=header.object_id)
    tail = (await store.get(key, Span(footer.meta_offset, size - footer.meta_offset))).data
    meta = await database.runtime.offload.run(lambda: read_meta(tail, footer, object_name=key))
    blocks = await _blocks(store, key, meta)
    bloom = meta.filter
    return SstInspection(
        key,
        found.named,
        header,
        footer,
        meta.stats,
        found.range_deletes,
        0 if bloom is None else len(bloom.bits),
        0.0 if bloom is None else 8 * len(bloom.bits) / max(1, bloom.keys),
        blocks,
    )


async def _blocks(store: ObjectStore, key: str, meta: SstMeta) -> tuple[BlockInspection, ...]:
    index = meta.index
    ends = [offset + stored for offset, stored in zip(index.offsets, index.stored_bytes, strict=True)]
    trailers = await read_spans(store, key, [Span(end - TRAILER_BYTES, TRAILER_BYTES) for end in ends])
    return tuple(
        BlockInspection(
            index.first_keys[number],
            index.rows[number],
            index.offsets[number],
            index.stored_bytes[number],
            stored_raw_bytes(trailer),
            stored_codec(trailer),
            bool(index.continues[number]),
        )
        for number, trailer in enumerate(trailers)
    )
