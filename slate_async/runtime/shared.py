"""Clients shared by reference count: made for the first user, closed after the last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, Protocol, TypeVar

from slate_async.errors import ClosedError
from slate_async.runtime.concurrent import run_all

T = TypeVar("T")


class Shared(Generic[T]):
    """One client per key, while somebody uses it."""

    def __init__(self, close: Callable[[T], Awaitable[None]]) -> None:
        self._close = close
        self._users: dict[Hashable, tuple[T, int]] = {}
        self._over = False

    def take(self, key: Hashable, make: Callable[[], T]) -> tuple[T, Callable[[], Awaitable[None]]]:
        """The client of ``key`` and how to give it back, once. Raises `ClosedError` once it has ended."""
        if self._over:
            raise ClosedError("this Environment is closed; make another one", outcome="not_applied")
        client, users = self._users[key] if key in self._users else (make(), 0)
        self._users[key] = (client, users + 1)

        async def give_back() -> None:
            held, left = self._users[key]
            if left > 1:
                self._users[key] = (held, left - 1)
                return
            del self._users[key]
            await self._close(held)

        return client, give_back

    def end(self) -> None:
        """Make no client any more. Those in use are closed by their users."""
        self._over = True


class Taken:
    """What one user has taken of what is shared: given back together, once, and nothing is taken after that."""

    def __init__(self) -> None:
        self._give_backs: list[Callable[[], Awaitable[None]]] = []
        self._over = False

    def take(self, shared: Shared[T], key: Hashable, make: Callable[[], T]) -> T:
        """See `Shared.take`."""
        if self._over:
            raise ClosedError("the store or metastore is closed; open the database again", outcome="not_applied")
        client, give_back = shared.take(key, make)
        self._give_backs.append(give_back)
        return client

    async def give_back(self) -> None:
        """Give everything back. Idempotent."""
        self._over = True
        give_backs, self._give_backs = self._give_backs, []
        await run_all(give_backs)


class Closable(Protocol):
    """What an owner closes together with others."""

    @property
    def _name(self) -> str:
        """For messages."""

    async def close(self) -> None:
        """Finish what was begun, and close. Idempotent."""

    def _stop(self) -> object:
        """Give up what was begun: `close` is to end soon."""
