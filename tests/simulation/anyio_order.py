"""Makes anyio's cancel scopes iterate in the order they were made.

anyio keeps child scopes in a set, and a scope hashes by its address, so the order in which nested scopes are
cancelled would differ from run to run. While a simulation runs, scopes hash by first use instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from anyio._backends._asyncio import CancelScope


@contextmanager
def ordered_cancel_scopes() -> Iterator[None]:
    """Number cancel scopes while the context lasts. Scopes are kept alive so that no number is given twice."""
    numbers: dict[int, tuple[int, CancelScope]] = {}

    def number(scope: CancelScope) -> int:
        return numbers.setdefault(id(scope), (len(numbers), scope))[0]

    with mock.patch.object(CancelScope, "__hash__", number):
        yield
