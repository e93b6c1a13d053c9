"""`Environment`: what the databases of one process share."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from slate_async.database import environment as engine
from slate_async.objectstore.protocol import ObjectStore
from slate_async.sync.handle import shared_loop


class Environment:
    """As `slate_async.Environment`, to be given to `slate_async.sync.open` and its kin as ``environment=``.

    ``with``, or `close`, which closes its databases. One that is open when the interpreter ends is closed then."""

    shared: engine.Environment
    """The environment of the loop, which holds what its databases share."""

    def __init__(
        self,
        *,
        block_cache_bytes: int | None = None,
        threads: int | None = None,
        stores: Mapping[str, ObjectStore] | None = None,
        close_deadline_ms: int = 60_000,
    ) -> None:
        self._loop = shared_loop()
        self.shared = engine.Environment(
            block_cache_bytes=block_cache_bytes, threads=threads, stores=stores, close_deadline_ms=close_deadline_ms
        )
        self._loop.at_end(self, self.shared.close)

    def close(self) -> None:
        """Close what is still open of it, then give up threads and polling. Idempotent."""
        try:
            self._loop.run(self.shared.close)
        finally:
            self._loop.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._loop.run(self.shared.__aexit__, kind, error, traceback)
        finally:
            self._loop.forget(self)

    def __repr__(self) -> str:
        return repr(self.shared).replace("<", "<sync ", 1)
