"""`CriticalHandle`: a hold by name, which keeps since and has no lease.

It stands until it is given up, whatever becomes of the processes that know it. They agree by its token: who downgrades
it says which token it expects. One that finds another token knows that somebody else does the work.

All state is in the store, and each call reads it first. A cancelled call may be in.

Rules C10, C11 and C12 of collections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from metastores.protocol import Committed, Unknown
from slate_async.collections.core import critical
from slate_async.collections.core.frontier import Frontier, FrontierLike
from slate_async.collections.core.holding import Hold, StoredHold
from slate_async.collections.core.names import check_name
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.handle import ReadHandle, make_reader
from slate_async.collections.reader.registering import REGISTRATIONS, check_room, hold_under, too_fast
from slate_async.collections.store.conditional import after, not_applied
from slate_async.errors import UnavailableError


async def open_critical(context: ReaderContext, name: str, note: str = "") -> CriticalHandle:
    """The critical hold called ``name``: the one that is stored, or a new one at what may be read now.

    note: stored with a new one, for people. Raises `InvalidError` for a name that no hold may have and for a new one
    beyond ``max_holds``, `ClosedError` if the collection was deleted, `UnavailableError`."""
    check_name(name, "critical hold")
    stored = _Stored(context, name)

    async def decide(found: StoredHold | None, nonce: str, sent: frozenset[str]) -> Hold | None:
        if found is None:
            await check_room(context)
        head = await context.head()  # after the hold was read
        return critical.opening(name, found, head, nonce, note)

    for _ in range(REGISTRATIONS):
        found = await stored.edit(decide)
        if found is not None and critical.is_registered(found.hold):
            return CriticalHandle(context, name, found.hold)
    raise too_fast(context)


class CriticalHandle:
    """Made by `Collection.critical`. It needs no closing: nothing runs for it. One for each event loop."""

    name: str
    """Of the hold."""

    def __init__(self, context: ReaderContext, name: str, hold: Hold) -> None:
        self._context = context
        self._stored = _Stored(context, name)
        self._hold = hold
        self.name = name

    @property
    def since(self) -> Frontier:
        """What it kept at the last call."""
        return self._hold.since

    @property
    def token(self) -> str:
        """The token that it had at the last call; empty before the first downgrade."""
        return self._hold.token or ""

    async def compare_and_downgrade(self, expected: str, token: str, since: FrontierLike) -> None:
        """Give up times that are not beyond ``since`` and store ``token``, iff the stored one is ``expected``.

        A since never goes back. Raises `TokenMismatchError` with what is stored, if that is another one;
        `LeaseLostError` if the hold was given up; `UnavailableError` past the deadline: then it may be in, now or
        later."""
        wanted = Frontier.of(since, self._context.schema.kind)

        async def decide(found: StoredHold | None, nonce: str, sent: frozenset[str]) -> Hold | None:
            return critical.downgrading(self.name, found, expected, token, wanted, nonce, sent)

        self._note(await self._stored.edit(decide))

    async def refresh(self) -> None:
        """Read `since` and `token` as they are now. Raises `LeaseLostError` if it was given up, `UnavailableError`."""
        self._note(await self._stored.read())

    async def reader(self, note: str = "") -> ReadHandle:
        """A leased read handle at its since: what it reads is kept by a lease of its own from then on.

        Raises `LeaseLostError` if the hold was given up, `InvalidError` beyond ``max_holds``, `ClosedError`,
        `UnavailableError`."""
        return await make_reader(
            self._context,
            lambda supervisor: hold_under(self._context, supervisor, note, self.name, self._since_now),
        )

    async def expire(self) -> None:
        """Give it up. Idempotent. Raises `UnavailableError`: then it may be given up, now or later."""

        async def decide(found: StoredHold | None, nonce: str, sent: frozenset[str]) -> Hold | None:
            return critical.giving_up(found, nonce)

        await self._stored.edit(decide)

    async def _since_now(self) -> Frontier:
        self._note(await self._stored.read())
        return self.since

    def _note(self, stored: StoredHold | None) -> None:
        self._hold = critical.standing(self.name, stored)


class _Stored:
    """The stored hold called ``name``, changed by compare-and-set (C10)."""

    def __init__(self, context: ReaderContext, name: str) -> None:
        self._context = context
        self._name = name

    async def read(self) -> StoredHold | None:
        """As it is now."""
        return await self._context.answered("a read of a hold", lambda: self._context.holds.read(self._name))

    async def edit(
        self, decide: Callable[[StoredHold | None, str, frozenset[str]], Awaitable[Hold | None]]
    ) -> StoredHold | None:
        """Write what ``decide`` says of what is stored, unless it says ``None``; returns what is stored then. It is
        given a nonce for each attempt, and the nonces of those before that may be in."""
        context, sent = self._context, frozenset[str]()
        backoff, outcome = context.backoff(f"a write of the hold {self._name}"), not_applied()
        while True:
            found, nonce, cause = await self.read(), context.runtime.ids.token(), None
            hold = await decide(found, nonce, sent)
            if hold is None:
                return found
            etag = None if found is None else found.etag
            try:
                written = await backoff.attempt(context.holds.write(self._name, hold, etag))
            except UnavailableError as error:
                cause, outcome = error, after(outcome, error)
                if error.outcome == "unknown":
                    sent |= {nonce}
            else:
                if isinstance(written, Committed):
                    return StoredHold(hold, written.value)
                outcome = after(outcome, written)
                if isinstance(written, Unknown):
                    sent |= {nonce}
            await backoff.wait(cause, outcome)
