"""How a new hold comes to be believed.

By a head that was read after it was written (C11), or by the hold of its source (C12).

A collection that has `ReaderContext.max_holds` takes no other one; those that were given up do not count. They are
listed before, so of several that register at the same time a few more may come in.

A registration that fails or is cancelled leaves its hold to the end of its lease.

Rules C11 and C12 of collections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from slate_async.collections.core import holding
from slate_async.collections.core.area import Area
from slate_async.collections.core.edits import check_open
from slate_async.collections.core.errors import LeaseLostError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.holding import Cover, Handle
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.renewal import KeptHold
from slate_async.errors import InvalidError, UnavailableError
from slate_async.runtime.supervisor import Supervisor

REGISTRATIONS = 100
"""A new hold follows a head that has passed it so many times at most."""


async def check_room(context: ReaderContext) -> None:
    """Raise `InvalidError` if as many holds stand as may; it costs a listing, and a read of each where so many are
    listed. `UnavailableError`, `CorruptionError`."""
    listed = await context.answered("a listing of holds", context.holds.list)
    if len(listed) < context.max_holds:
        return
    stored = await context.answered("a read of holds", lambda: context.holds.read_all(listed))
    standing = sum(not found.hold.revoked for found in stored.values())
    if standing >= context.max_holds:
        raise InvalidError(
            f"{context.name} has {standing} holds, and max_holds={context.max_holds}: expire readers and critical holds"
            " that nobody needs, or raise the setting; a controller removes those whose lease has ended",
            outcome="not_applied",
        )


async def registered_hold(context: ReaderContext, supervisor: Supervisor, note: str) -> tuple[KeptHold, Area]:
    """A new hold that is believed by itself, and the head that showed it (C11).

    Raises `ClosedError` if the collection was deleted, `InvalidError` beyond ``max_holds``, `UnavailableError`."""
    head = await context.head()
    check_open(head)
    await check_room(context)
    hold = KeptHold(context, holding.registering(context.runtime.ids.token(), head, context.lease_ms, note), supervisor)
    await hold.write()
    for _ in range(REGISTRATIONS):
        head = await context.head()
        if holding.registered(hold.handle, head):
            return hold, head
        await hold.follow(head)
    raise too_fast(context)


async def cloned_hold(
    context: ReaderContext, supervisor: Supervisor, note: str, source: KeptHold, area: Area, since: Frontier
) -> tuple[KeptHold, Area]:
    """A clone of ``source``, which moves past neither ``area`` nor ``since`` meanwhile, believed by that (C12); and
    ``area``, which it reads. ``source`` may be renewed meanwhile.

    Raises `LeaseLostError` if the source was lost, `InvalidError` beyond ``max_holds``, `UnavailableError`."""
    await check_room(context)
    source.check()
    made = holding.cloning(context.runtime.ids.token(), source.handle, area, context.lease_ms, note)
    hold = KeptHold(context, made, supervisor)
    await hold.write(version=area.version, since=since)
    try:
        covered = await source.cover(hold.handle)
        if covered is not Cover.ALL:
            await source.write()  # what was sent before and had no answer may be in: this finds out
            covered = await source.cover(hold.handle)
        if covered is not Cover.ALL:
            raise source.lost_error()
    except LeaseLostError:
        await hold.remove()
        raise
    return hold, area


async def hold_under(
    context: ReaderContext, supervisor: Supervisor, note: str, name: str, since_of: Callable[[], Awaitable[Frontier]]
) -> tuple[KeptHold, Area]:
    """A hold with the since of the critical one called ``name``, believed by that (C12); and the head that showed its
    version.

    since_of: what the critical hold keeps, by a read that begins now. Raises as it does, and as `registered_hold`."""
    head = await context.head()
    check_open(head)
    await check_room(context)
    source = Handle(name, None, await since_of(), None)
    made = holding.cloning(context.runtime.ids.token(), source, head, context.lease_ms, note)
    hold = KeptHold(context, made, supervisor)
    await hold.write()
    for _ in range(REGISTRATIONS):
        since = await since_of()
        if not since <= hold.handle.since:  # another process has downgraded it
            await hold.write(since=since)
            continue
        head = await context.head()
        if holding.has_version(hold.handle, head):
            return hold, head
        await hold.follow(head, since=False)
    raise too_fast(context)


def too_fast(context: ReaderContext) -> UnavailableError:
    """The error of a registration that followed the head for too long."""
    return UnavailableError(f"{context.name} was compacted faster than a hold on it could be written")
