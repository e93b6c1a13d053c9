"""`Watch`: changes of a database as they become durable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from slate_async.engine.changes.change import Change
from slate_async.engine.watch import watch as asynchronous
from slate_async.runtime.loop_thread import LoopThread


class Watch:
    """``for change in watch``. Made by ``watch()``. One thread at a time; another one may `close` it, which ends the
    wait of the first with `slate_async.ClosedError`.

    As `slate_async.Watch`: it may be left and iterated again."""

    def __init__(self, loop: LoopThread, watch: asynchronous.Watch) -> None:
        self._loop = loop
        self._watch = watch

    @property
    def last_seq(self) -> int:
        """All changes up to this sequence number were handed out, or do not match."""
        return self._loop.call(lambda: self._watch.last_seq)

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        return self._loop.run(self._watch.__anext__)

    def next_changes(self) -> Sequence[Change]:
        """All changes that are here, at least one: waits for that."""
        return self._loop.run(self._watch.next_changes)

    def close(self) -> None:
        """Stop; a thread that waits for the next change gets `slate_async.ClosedError`. Idempotent."""
        self._loop.call(self._watch.close)

    def __enter__(self) -> Self:
        self._loop.run(self._watch.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
