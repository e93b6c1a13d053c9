"""Looking at the holds: which stand, what they allow, and which leases have run out.

Ordering rule: a head is read, THEN `Sweep.look` is called; what that allows goes with what the head has published.

A hold of which a listing shows a known etag need not be read again. A listing of one page that shows just what the last
look left is a picture by itself. Otherwise there are two at least, whatever the first one shows: of several pages, one
may miss a clone, and another no longer have its source.

A hold that is damaged counts as one that keeps everything; it is read again each time.

Revoked holds are removed, but not critical ones: their names are used again, and a removal that is late would hit the
next one. A small object stays of each name.

Rules C16 to C19 and C29 of collections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from metastores.protocol import Committed
from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.core import sweep
from slate_async.collections.core.area import Area
from slate_async.collections.core.holding import StoredHold
from slate_async.collections.core.sweep import Allowed, Leases, Listing
from slate_async.errors import UnavailableError

PAGE = 1_000
"""Fewer holds are listed by one request, which shows them all as they are at one time."""
MOST_LISTINGS = 100
"""A look at holds of which each listing shows new ones is given up after so many."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look showed.

    standing: all holds that count, by reader
    revoked: readers whose lease ran out, and whose hold was revoked just now
    is_new: whether anything differs from the look before"""

    standing: Mapping[str, StoredHold] = field(default_factory=dict)
    revoked: tuple[str, ...] = ()
    is_new: bool = True

    @property
    def allowed(self) -> Allowed:
        """What the holds allow together (C16, C17)."""
        return sweep.allowed(stored.hold for stored in self.standing.values())

    @property
    def damaged(self) -> dict[str, str]:
        """What is wrong with holds that cannot be read, by reader."""
        return sweep.damaged(self.standing)

    @property
    def versions(self) -> list[int]:
        """That leased holds have."""
        return [stored.hold.version for stored in self.standing.values() if stored.hold.version is not None]


class Sweep:
    """The looks of one controller, one at a time."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._known: dict[str, StoredHold] = {}
        self._leases = Leases()

    async def look(self, head: Area) -> Looked:
        """All holds, after ``head`` was read. Revokes those whose lease ran out, and those that retain too many
        versions. Raises `UnavailableError`."""
        before = self._known
        stored = await self._read_all()
        self._known = stored
        now = self._context.now_ms()
        self._leases = self._leases.noted(stored, now)
        ended = set(self._leases.expired(stored, now)) | self._hoarders(head, stored)
        revoked = [name for name in sorted(ended) if await self._is_revoked(name, stored[name])]
        removed = [name for name in sweep.to_remove(head, stored) if name not in revoked]
        if removed:
            remove = partial(self._context.holds.remove, removed)
            await self._context.answered("a removal of revoked holds", remove, "unknown")
        standing = {name: found for name, found in stored.items() if not found.hold.revoked and name not in revoked}
        is_new = {name: found.etag for name, found in stored.items()} != {name: f.etag for name, f in before.items()}
        return Looked(standing, tuple(revoked), is_new or bool(revoked))

    async def _read_all(self) -> dict[str, StoredHold]:
        """C18."""
        context, known = self._context, self._known
        listed = await context.answered("a listing of holds", context.holds.list)
        is_known = listed == {name: found.etag for name, found in known.items()}
        if len(listed) < PAGE and is_known and not sweep.damaged(known):
            return known
        listing, stored = Listing(), dict[str, StoredHold]()
        for number in range(MOST_LISTINGS):
            listing = listing.listed(listed)
            if is_complete(listing, number):
                return stored
            stored |= await self._read(listing.unread, listed)
            listing = listing.read()
            listed = await context.answered("a listing of holds", context.holds.list)
        raise UnavailableError(f"each of {MOST_LISTINGS} listings showed new holds of {context.name}")

    async def _read(self, names: frozenset[str], listed: Mapping[str, str]) -> dict[str, StoredHold]:
        known = {name: found for name in names if (found := self._known.get(name)) and found.etag == listed[name]}
        unknown = names - (known.keys() - sweep.damaged(known).keys())  # of damage the store may be to blame
        holds = self._context.holds
        return known | await self._context.answered("a read of holds", lambda: holds.read_all(unknown))

    def _hoarders(self, head: Area, stored: Mapping[str, StoredHold]) -> set[str]:
        """Leased holds that retain more versions than are allowed."""
        lowest = head.version - self._context.retained_versions
        return {name for name, found in stored.items() if sweep.is_hoarding(found.hold, lowest)}

    async def _is_revoked(self, name: str, stored: StoredHold) -> bool:
        """C19: revoke a hold as it was read; whether that was answered with yes. If not, it counts."""
        revoked = sweep.revoking(stored.hold, self._context.runtime.ids.token())
        try:
            answer = await self._context.holds.write(name, revoked, stored.etag)
        except UnavailableError:
            return False
        if not isinstance(answer, Committed):
            return False
        self._known = {**self._known, name: replace(stored, hold=revoked, etag=answer.value)}
        return True


def is_complete(listing: Listing, number: int) -> bool:
    """C18: whether a listing that shows nothing new, the one after ``number`` others, ends the look."""
    return listing.complete and number > 0
