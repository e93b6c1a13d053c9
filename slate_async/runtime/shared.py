"""Clients shared by reference count: made for the first user, closed after the last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """One client per key, while somebody uses it."""

    def __init__(self, close: Callable[[T], Awaitable[None]]) -> None:
        self._close = close
        self._users: dict[Hashable, tuple[T, int]] = {}

    def clients(self) -> list[T]:
        """Those in use."""
        return [client for client, _ in self._users.values()]

    def take(self, key: Hashable, make: Callable[[], T]) -> tuple[T, Callable[[], Awaitable[None]]]:
        """The client of ``key`` and how to give it back, once."""
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
