"""`Namespace` and `NamespaceView`: a part of a database that looks like one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from slate_async.arguments import Duration
from slate_async.database.maps.index import Index
from slate_async.database.maps.value_codec import ValueCodec
from slate_async.database.namespaces import namespace as asynchronous
from slate_async.database.namespaces import reads as asynchronous_reads
from slate_async.engine.read.row_statistics import RowStatistics
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.history_reads import HistoryReads
from slate_async.sync.map import MapView
from slate_async.sync.write_handle import WriteHandle
from slate_async.sync.writes import Writes

K = TypeVar("K")
V = TypeVar("V")


class NamespaceReads(HistoryReads):
    """What a namespace offers alike for the writer and for a reader."""

    def __init__(self, loop: LoopThread, namespace: asynchronous_reads.NamespaceReads[Any]) -> None:
        self._loop = loop
        self._reads = self._history = self._seen = namespace

    @property
    def prefix(self) -> bytes:
        """What stands before its keys in the database."""
        return self._seen.prefix

    def stats(self) -> RowStatistics:
        """`row_statistics` of all that is in the namespace, those below it included."""
        return self._loop.run(self._seen.stats)

    def __repr__(self) -> str:
        return repr(self._seen).replace("<", "<sync ", 1)


class NamespaceView(NamespaceReads):
    """A namespace as a reader sees it. Made by `DbReader.namespace`."""

    def __init__(self, loop: LoopThread, namespace: asynchronous_reads.NamespaceView) -> None:
        super().__init__(loop, namespace)
        self._view = namespace

    def namespace(self, name: str) -> NamespaceView:
        """The namespace ``name`` in this one."""
        return NamespaceView(self._loop, self._view.namespace(name))

    def map(
        self, name: str, *, key: type[K], value: type[V] | ValueCodec[V], indexes: Iterable[Index[V]] = ()
    ) -> MapView[K, V]:
        """The typed map ``name`` in this namespace."""
        return MapView(self._loop, self._view.map(name, key=key, value=value, indexes=indexes))


class Namespace(NamespaceReads, Writes):
    """Made by `Db.namespace`. Methods and errors are those of `slate_async.Namespace`."""

    def __init__(self, loop: LoopThread, namespace: asynchronous.Namespace) -> None:
        super().__init__(loop, namespace)
        self._namespace = self._writes = namespace

    def namespace(self, name: str, *, default_ttl: Duration | None = None) -> Namespace:
        """The namespace ``name`` in this one. Without ``default_ttl`` that of this one counts."""
        return Namespace(self._loop, self._namespace.namespace(name, default_ttl=default_ttl))

    def clear(self, *, await_durable: bool = True) -> WriteHandle:
        """Delete all that is in the namespace, namespaces and maps in it included, in one step."""
        return WriteHandle(self._loop, self._loop.run(self._namespace.clear, await_durable=await_durable))
