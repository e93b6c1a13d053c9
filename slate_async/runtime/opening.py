"""`Opening`: what ``open`` and its kin return at once, before anything is open."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from slate_async.errors import InvalidError
from slate_async.runtime.concurrent import run_to_completion


class Openable(Protocol):
    """What is opened, and closed at the end of an ``async with``."""

    async def __aenter__(self) -> Self:
        """It is open already."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Any:
        """Close it."""


class EndsMore(Openable, Protocol):
    """What takes along what else ends with it."""

    def _on_closed(self, release: Callable[[], Awaitable[None]]) -> None:
        """Also call ``release`` when it has closed."""


H = TypeVar("H", bound=Openable)
E = TypeVar("E", bound=EndsMore)


class Opening(Generic[H]):
    """What `open` and its kin return: await it for what it opens, or enter it, and it is closed at the end. Once."""

    _what = "a database"
    _call = "open(...)"

    def __init__(self, start: Callable[[], Awaitable[H]], what: str | None = None, call: str | None = None) -> None:
        self._start = start
        self._used = False
        self._handle: H | None = None
        self._what = what or self._what
        self._call = call or self._call

    def _ending(self: Opening[E], close: Callable[[], Coroutine[Any, Any, None]]) -> Opening[E]:
        """The same, which ends with ``close``: after what it opens has closed, or failed to open."""
        start = self._start

        async def begin() -> E:
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
            raise InvalidError(f"this opening was used already; call {self._call} again")
        self._used = True
        return self._start()

    def __getattr__(self, name: str) -> object:
        raise AttributeError(
            f"{name!r}: {self._what} is not open yet; use `it = await {self._call}` or `async with {self._call} as it`"
        )

    def __del__(self) -> None:
        if not self._used:
            said = f"{self._what} was never opened: await {self._call}, or use `async with`"
            warnings.warn(said, RuntimeWarning, 2, self)

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
