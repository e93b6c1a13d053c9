"""`Opening`: what ``open`` and its kin return at once, before anything is open."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from slate_async.database.handle import Handle
from slate_async.errors import InvalidError
from slate_async.runtime.concurrent import run_to_completion

H = TypeVar("H", bound=Handle)


class Opening(Generic[H]):
    """What `open` and its kin return: await it for what it opens, or enter it, and it is closed at the end. Once."""

    def __init__(self, start: Callable[[], Awaitable[H]]) -> None:
        self._start = start
        self._used = False
        self._handle: H | None = None

    def _ending(self, close: Callable[[], Coroutine[Any, Any, None]]) -> Self:
        """The same, which ends with ``close``: after what it opens has closed, or failed to open."""
        start = self._start

        async def begin() -> H:
            require_loop()
            try:
                handle = await start()
            except BaseException:
                await run_to_completion(close())
                raise
            handle._on_closed(close)
            return handle

        self._start = begin
        return self

    def __await__(self) -> Generator[object, None, H]:
        return self._once().__await__()

    def _once(self) -> Awaitable[H]:
        if self._used:
            raise InvalidError("this opening was used already; call open() again")
        self._used = True
        return self._start()

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"{name!r}: the database is not open yet; use `db = await open(...)` or `async with`")

    def __del__(self) -> None:
        if not self._used:
            warnings.warn("a database was never opened: await open(...), or use `async with`", RuntimeWarning, 2, self)

    async def __aenter__(self) -> H:
        self._handle = await self._once()
        return await self._handle.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._handle is not None:
            await self._handle.__aexit__(kind, error, traceback)


def require_loop() -> None:
    """Raise `InvalidError` outside of an asyncio event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise InvalidError("a database is opened on asyncio (uvloop included); trio is not supported") from error
