"""`DbReader`: a database, read beside its writer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from slate_async.database import reader as asynchronous
from slate_async.database.maps.index import Index
from slate_async.database.maps.value_codec import ValueCodec
from slate_async.database.status import ReaderStatus
from slate_async.engine.read.time_travel import TimeLike
from slate_async.storage.liveness.observer import WriterLife
from slate_async.sync.map import MapView
from slate_async.sync.namespace import NamespaceView
from slate_async.sync.open_database import OpenDatabase

K = TypeVar("K")
V = TypeVar("V")


class DbReader(OpenDatabase[asynchronous.DbReader]):
    """Made by `slate_async.sync.open_reader`, never directly. Methods and errors are those of
    `slate_async.DbReader`."""

    def namespace(self, name: str) -> NamespaceView:
        """The namespace ``name`` as this reader sees it."""
        return NamespaceView(self._loop, self._handle.namespace(name))

    def map(
        self, name: str, *, key: type[K], value: type[V] | ValueCodec[V], indexes: Iterable[Index[V]] = ()
    ) -> MapView[K, V]:
        """The typed map ``name`` as this reader sees it."""
        return MapView(self._loop, self._handle.map(name, key=key, value=value, indexes=indexes))

    def seq_to_time(self, seq: int) -> float:
        """When sequence number ``seq`` was written, in seconds since the epoch."""
        return self._loop.call(self._handle.seq_to_time, seq)

    def time_to_seq(self, time: TimeLike) -> int:
        """The highest sequence number known to be written at ``time`` or before; 0 if there was none."""
        return self._loop.call(self._handle.time_to_seq, time)

    def refresh(self) -> None:
        """Catch up now: afterwards everything is here that was durable at the call."""
        self._loop.run(self._handle.refresh)

    def wait_for(self, seq: int) -> None:
        """Wait until sequence number ``seq`` is here."""
        self._loop.run(self._handle.wait_for, seq)

    def writer_life(self) -> WriterLife:
        """Whether the database has a writer that lives, and of which epoch."""
        return self._loop.run(self._handle.writer_life)

    def status(self) -> ReaderStatus:
        """The reader's state now. Works after closing, too."""
        return self._loop.call(self._handle.status)

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name."""
        return self._loop.call(self._handle.metrics)
