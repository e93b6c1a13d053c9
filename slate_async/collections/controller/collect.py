"""Deleting what nobody needs: pending batches, then merged files, then versions; at most so many a round.

Ordering rule (C24, kept by the types of `slate_async.collections.core.garbage`): files are listed, then those in flight
are noted, then the head is read, then every version from the lowest needed one to it.

A merged batch that ends beyond the head stays (C30): a version that was lost may have named it.

Of a deleted collection the holds go first, until a listing shows none (C14); then all but the tombstone.

Rules C5, C14, C17, C18, C22 to C25, C27, C28 and C30 of collections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.controller.flights import Flights
from slate_async.collections.controller.report import Collected
from slate_async.collections.core import garbage
from slate_async.collections.core.area import Area
from slate_async.collections.core.garbage import Garbage, Listed, PendingFile, Picture
from slate_async.collections.core.names import HashedFrontier
from slate_async.collections.store.merged import list_merged, read_uppers
from slate_async.errors import UnavailableError

DELETES_AT_ONCE = 500
KNOWN_VERSIONS = 2_000
"""Of those that an old hold retains, so many are read once."""
HOLD_LISTINGS = 100


async def collect(
    context: ControllerContext,
    epoch: int,
    published: Area,
    held: Sequence[int],
    flights: Flights,
    known: dict[int, Area],
    *,
    dry_run: bool = False,
) -> Collected:
    """One collection of garbage.

    known: versions that were read before, which never change; kept for the next time
    published: a head that was read before the holds were listed; ``held``: the versions of all leased ones (C17)

    Raises `UnavailableError`, `CorruptionError`."""
    flights.saw(context.versions.head or published)
    lowest = garbage.lowest_needed(published, held)
    picture = await look(context, lowest, flights, known)
    if picture is None:
        return Collected(complete=False)  # somebody else collects: C24
    if unread := picture.unread(epoch):  # C30
        read = partial(read_uppers, context.store, context.schema, unread)
        picture = picture.after_reading(await context.answered("a look at merged files", read))
    files = await pending_files(context)
    dead_pending = list(picture.dead_pending(files))
    dead_merged = list(picture.dead_merged(epoch))
    limit = context.gc_max_deletes
    pending, merged = dead_pending[:limit], dead_merged[: max(limit - len(dead_pending), 0)]
    complete = len(pending) + len(merged) == len(dead_pending) + len(dead_merged)
    merged_by_now = replace(picture, cut_off=picture.head.upper).dead_pending(files)
    kept = sum(1 for _ in merged_by_now) - len(dead_pending)
    nbytes = sum(found.nbytes for found in (*pending, *merged))
    done = Collected(len(pending), len(merged), 0, kept, complete, nbytes=nbytes)
    if not dry_run:
        await _delete(context, pending, context.pending.delete)
        await _delete(context, merged, context.store.delete)
    if complete:
        versions = await context.answered(
            "a deletion of versions",
            lambda: context.versions.collect(lowest, picture.head, limit=limit, dry_run=dry_run),
        )
        done = replace(done, versions=versions, complete=versions < limit)
    return replace(done, garbage=(*pending, *merged)) if dry_run else done


async def bury(context: ControllerContext, tombstone: Area, *, dry_run: bool = False) -> Collected:
    """Delete all of a deleted collection but its ``tombstone``, and what was put there since: holds first.

    Anybody may do so, at any time. Raises `UnavailableError`, `CorruptionError`."""
    holds = context.holds
    for _ in range(0 if dry_run else HOLD_LISTINGS):
        listed = await context.answered("a listing of holds", holds.list)
        if not listed:
            break
        await context.answered("a removal of holds", partial(holds.remove, list(listed)), "unknown")
    else:
        if not dry_run:
            raise UnavailableError(f"{context.name} was deleted, and each listing showed new holds on it")
    return await collect(context, tombstone.epoch, tombstone, (), Flights(), {}, dry_run=dry_run)


async def look(context: ControllerContext, lowest: int, flights: Flights, known: dict[int, Area]) -> Picture | None:
    """C24: list, note what is in flight, read the head, read every version; ``None`` if one is missing."""
    files = await context.answered("a listing of merged files", partial(list_merged, context.store, context.schema))
    listed = Listed(lowest, tuple(files), flights.names)
    head = await context.answered("a read of the head", context.versions.load)
    wanted = listed.at(head)
    found = await _versions(context, min(wanted.versions, default=head.version), head, known)
    return Picture.of(wanted, found)


async def _versions(
    context: ControllerContext, first: int, head: Area, known: dict[int, Area]
) -> dict[int, Area | None]:
    """From ``first`` to the one before ``head``: those that follow the last one that is known are read."""
    for version in [version for version in known if version < first]:
        del known[version]
    start = first
    while start in known:
        start += 1
    read = await context.versions.read_range(start, head, context.answered)
    found = {**known, **read}
    for version, area in sorted(read.items())[: max(KNOWN_VERSIONS - len(known), 0)]:
        if area is not None:
            known[version] = area
    return {version: found.get(version) for version in range(first, head.version)}


async def pending_files(context: ControllerContext) -> list[PendingFile]:
    """All objects of the pending area, parts included, by what their names say (C5)."""
    return await context.answered("a listing of pending batches", partial(_list_pending, context))


async def _list_pending(context: ControllerContext) -> list[PendingFile]:
    found = []
    async for listed in context.pending.list():
        lower, upper = listed.name.lower, listed.name.upper
        if isinstance(lower, HashedFrontier) or isinstance(upper, HashedFrontier):
            described = await context.pending.describe(listed.name)  # equal names have equal frontiers
            if described is None:
                continue
            lower, upper = described.lower, None if upper is None else described.upper
        found.append(PendingFile(listed.key, lower, upper, listed.nbytes))
    return found


async def _delete(
    context: ControllerContext, dead: Iterable[Garbage], delete: Callable[[list[str]], Awaitable[None]]
) -> None:
    keys = [found.key for found in dead]
    for start in range(0, len(keys), DELETES_AT_ONCE):
        some = keys[start : start + DELETES_AT_ONCE]
        await context.answered("a deletion", partial(delete, some), "unknown")
