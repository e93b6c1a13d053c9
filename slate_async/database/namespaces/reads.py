"""Reads of a namespace: those of its database, with keys below its prefix."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from slate_async.arguments import BytesLike, prefix_bytes, sought_key
from slate_async.database.maps.index import Index
from slate_async.database.maps.map_type import map_type
from slate_async.database.maps.value_codec import ValueCodec
from slate_async.database.maps.within import MapView
from slate_async.database.namespaces.prefix import MAP, NAMESPACE, prefix_of, span_of
from slate_async.database.readable import Reads
from slate_async.database.snapshot import Snapshot
from slate_async.engine.changes.options import Initial
from slate_async.engine.read.bounds import key_range
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.row_statistics import RowStatistics
from slate_async.engine.read.scan import Scan
from slate_async.engine.read.source import HistorySource, ReadSource
from slate_async.engine.read.splits import SPLIT_BYTES, Split
from slate_async.engine.read.time_travel import TimeLike
from slate_async.engine.watch.options import OnLag, WatchFrom, WatchOptions
from slate_async.engine.watch.watch import Watch
from slate_async.types import Row

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound=ReadSource)
H = TypeVar("H", bound=HistorySource)
OpenWatch: TypeAlias = Callable[[WatchOptions], Watch]
"""Opens a watch of the database."""


class PrefixedReads(Reads[S]):
    """`Reads` whose keys stand below a prefix. The class that inherits them sets ``_reads`` and ``_prefix``."""

    _prefix: bytes

    @property
    def prefix(self) -> bytes:
        """What stands before its keys in the database."""
        return self._prefix

    def _sought(self, key: BytesLike) -> bytes:
        return sought_key(self._prefix + sought_key(key))

    def get(self, key: BytesLike, *, durable: bool = False) -> Coroutine[Any, Any, bytes | None]:
        """The value of ``key``, or ``None``. With ``durable`` only what is acknowledged as durable is seen."""
        return self._reads.get(self._sought(key), durable)

    def get_many(self, keys: Sequence[BytesLike], *, durable: bool = False) -> Coroutine[Any, Any, list[bytes | None]]:
        """The values of ``keys`` in their order, all of one read point; each block is read once."""
        return self._reads.get_many([self._sought(key) for key in keys], durable)

    async def _get_row(self, key: bytes, durable: bool) -> Row | None:
        row = await super()._get_row(sought_key(self._prefix + key), durable)
        return None if row is None else row._replace(key=key)

    def scan(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
        durable: bool = False,
    ) -> Scan:
        """Rows from ``start`` (inclusive) to ``end`` (exclusive), or with ``prefix``, as they are at this call. Keys
        and bounds are those of the namespace."""
        first, stop = span_of(self._prefix, key_range(start, end, prefix))
        found = super().scan(first, stop, reverse=reverse, limit=limit, durable=durable)
        return found._without_prefix(len(self._prefix))

    async def splits(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        target_bytes: int = SPLIT_BYTES,
        durable: bool = False,
    ) -> list[Split]:
        """Key ranges that cover those of `scan` once, in order, with about ``target_bytes`` of SSTs each."""
        within = key_range(start, end, prefix)
        first, stop = span_of(self._prefix, within)
        found = await super().splits(first, stop, target_bytes=target_bytes, durable=durable)
        cut = len(self._prefix)
        starts = [within.start, *(split.start[cut:] for split in found[1:] if split.start is not None)]
        ends = [*starts[1:], within.end]
        return [Split(begin, till, split.nbytes) for begin, till, split in zip(starts, ends, found, strict=False)]

    async def row_statistics(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        durable: bool = False,
    ) -> RowStatistics:
        """How many rows there are in the range of keys, live and otherwise, and of which sizes; keys count with the
        prefix. Reads all of them."""
        first, stop = span_of(self._prefix, key_range(start, end, prefix))
        return await super().row_statistics(first, stop, durable=durable)

    def stats(self) -> Coroutine[Any, Any, RowStatistics]:
        """`row_statistics` of all that is in the namespace, those below it included."""
        return self.row_statistics()


class NamespaceSnapshot(PrefixedReads[Any], Snapshot):
    """A `Snapshot` of a namespace."""

    def __init__(self, source: ReadSource, point: ReadPoint, prefix: bytes) -> None:
        super().__init__(source, point)
        self._prefix = prefix


class NamespaceReads(PrefixedReads[H]):
    """What a namespace offers alike for the writer and for a reader. Either sets ``_open_watch``, too."""

    _open_watch: OpenWatch

    def watch(
        self,
        *,
        prefix: BytesLike | None = None,
        from_seq: WatchFrom = "now",
        initial: Initial = "error",
        on_lag: OnLag = "feed",
    ) -> Watch:
        """Changes of the namespace as they become durable. Keys are those of the namespace, sequence numbers and the
        rest as of `Db.watch`."""
        whole = self._prefix + prefix_bytes(prefix)
        return self._open_watch(WatchOptions(whole, from_seq, initial, on_lag, len(self._prefix)))

    def snapshot(self, *, durable: bool = False, include_expired: bool = False) -> Snapshot:
        """A stable view of everything written so far. Use ``async with``, or `Snapshot.close` it. Arguments as of
        `Db.snapshot`."""
        self._reads.begun += 1
        point = self._reads.point(durable)
        return NamespaceSnapshot(self._reads, point._replace(now_ms=0) if include_expired else point, self._prefix)

    def as_of(self, *, seq: int | None = None, time: TimeLike | None = None) -> Snapshot:
        """The namespace as it was when ``seq`` was the database's newest sequence number, or at ``time``; as
        `Db.as_of`."""
        self._reads.begun += 1
        return NamespaceSnapshot(self._reads, self._reads.as_of(seq, time), self._prefix)


class NamespaceView(NamespaceReads[HistorySource]):
    """A namespace as a reader sees it. Made by `DbReader.namespace`."""

    def __init__(self, reads: HistorySource, open_watch: OpenWatch, prefix: bytes) -> None:
        self._reads = reads
        self._open_watch = open_watch
        self._prefix = prefix

    def namespace(self, name: str) -> NamespaceView:
        """The namespace ``name`` in this one."""
        return NamespaceView(self._reads, self._open_watch, self._prefix + prefix_of(NAMESPACE, name))

    def map(
        self, name: str, *, key: type[K], value: type[V] | ValueCodec[V], indexes: Iterable[Index[V]] = ()
    ) -> MapView[K, V]:
        """The typed map ``name`` in this namespace: see `Db.map`."""
        return MapView(map_type(name, self._prefix + prefix_of(MAP, name), key, value, indexes), self._reads)

    def __repr__(self) -> str:
        return f"<NamespaceView {self._prefix!r}>"
