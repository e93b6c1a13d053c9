"""A look at a collection: one listing, the head and the versions that are kept, and the holds.

Nothing is written and nothing is held, so what is shown may be of two moments.

Rules C4, C7, C16, C17 and C24 of collections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slate_async.collections.codec.life import Appends
from slate_async.collections.core import garbage, sweep
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.chain import is_dead
from slate_async.collections.core.coverage import extend
from slate_async.collections.core.frontier import Frontier, meet_all
from slate_async.collections.core.garbage import Listed, PendingFile, Picture
from slate_async.collections.core.holding import StoredHold
from slate_async.collections.core.names import PendingName
from slate_async.collections.overview.views import GarbageView, HoldView, LayerBatch, Overview, Shard
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.follow import PendingBatch, follower
from slate_async.collections.store.merged import read_uppers
from slate_async.collections.verify.listing import Listing, list_all
from slate_async.errors import CorruptionError
from slate_async.runtime.concurrent import map_bounded

READS_AT_ONCE = 16


async def look(context: ReaderContext, life: int, created_ms: int | None = None) -> Overview:
    """The collection as it is now; ``life``: the number of its life, which was created at ``created_ms``.

    Raises `CorruptionError` for a head that is damaged, `UnavailableError`."""
    listing = await list_all(context)
    head = await context.head()
    stored = await context.answered("a read of the holds", lambda: context.holds.read_all(listing.holds))
    reach = (await follower(context).look(head.upper)).coverage
    sizes: dict[str, int] = {}
    for _, name, size in listing.merged:
        sizes[str(name)] = sizes.get(str(name), 0) + size
    pending = await _bounded(context, listing)
    lowest, picture = await _picture(context, listing, head, stored)
    return Overview(
        name=context.name,
        life=life,
        time=context.schema.kind.value,
        appends=context.appends.value,
        version=head.version,
        epoch=head.epoch,
        deleted=head.deleted,
        lower=str(head.lower),
        upper=str(head.upper),
        reach=str(reach),
        since=str(head.since),
        bound=str(head.bound),
        floor=head.floor,
        retained=head.version - max(lowest, 1) if head.version else 0,
        rows=head.rows,
        nbytes=sum(sizes.get(name, 0) for name in head.names()),
        layers=tuple(_layer(batch, head, sizes.get(batch.name, 0)) for batch in head.batches),
        shards=tuple(_shards(context, head, pending)),
        holds=tuple(_holds(context, listing, head, stored)),
        garbage=await _garbage(context, listing, pending, head, lowest, picture),
        created_ms=created_ms,
    )


async def _picture(
    context: ReaderContext, listing: Listing, head: Area, stored: Mapping[str, StoredHold]
) -> tuple[int, Picture | None]:
    """The lowest version that is needed, and by what garbage is judged; ``None`` if a version is not there, or a
    hold is damaged."""
    damaged = sweep.damaged(stored)
    held = [found.hold.version for name, found in stored.items() if not found.hold.revoked and name not in damaged]
    lowest = garbage.lowest_needed(head, [version for version in held if version is not None])
    if damaged:
        return lowest, None
    wanted = Listed(lowest, tuple(listing.files()), frozenset()).at(head)
    try:
        versions = await context.versions.read_range(max(lowest, 1), head, context.answered)
    except CorruptionError:
        return lowest, None
    picture = Picture.of(wanted, versions)
    if picture is not None and (unread := picture.unread(head.epoch)):
        files = await context.answered(
            "a look at merged files", lambda: read_uppers(context.store, context.schema, unread)
        )
        picture = picture.after_reading(files)
    return lowest, picture


def _layer(batch: MergedBatch, head: Area, nbytes: int) -> LayerBatch:
    bounds = batch.bounds
    return LayerBatch(
        lower=str(bounds.lower),
        upper=str(bounds.upper),
        since=str(bounds.since),
        level=batch.level,
        rows=batch.rows,
        keys=batch.keys,
        times=batch.times,
        nbytes=nbytes,
        parts=batch.parts,
        fuel=sum(fuel.rows for fuel in head.fuel if fuel.first == batch.name),
    )


def _shards(context: ReaderContext, head: Area, pending: Sequence[PendingBatch]) -> list[Shard]:
    """What each writer has beyond the merged area."""
    by_writer: dict[str, list[PendingBatch]] = {}
    sizes: dict[str, int] = {}
    for found in pending:
        beyond = not is_dead(found.lower, head.upper) if context.appends is Appends.COMPARE else True
        if beyond and not found.upper <= head.upper:
            writer = found.name.writer
            sizes[writer] = sizes.get(writer, 0) + found.nbytes
            if found.name.part is None:
                by_writer.setdefault(writer, []).append(found)
    shards = []
    for writer, batches in sorted(by_writer.items()):
        reach = extend(head.upper, batches).coverage
        ahead = sum(not batch.upper <= reach for batch in batches)
        shards.append(Shard(writer, len(batches), sizes[writer], str(reach), ahead))
    return shards


async def _bounded(context: ReaderContext, listing: Listing) -> list[PendingBatch]:
    """All objects of the pending area with their bounds: by their names, or by what they say."""

    async def bounded(key: str, name: PendingName, nbytes: int) -> PendingBatch | None:
        lower, upper = name.lower, name.upper
        if isinstance(lower, Frontier) and isinstance(upper, Frontier):
            return PendingBatch(lower, upper, name, None, nbytes)
        try:
            said = await context.answered(f"a look at {key}", lambda: context.pending.describe(name))
        except CorruptionError:
            return None  # a verification says so
        return None if said is None else PendingBatch(said.lower, said.upper, name, None, nbytes)

    own = [listed for listed in listing.pending if (listed.name.upper is None) is (context.appends is Appends.COMPARE)]
    found = await map_bounded(lambda listed: bounded(*listed), own, READS_AT_ONCE) if own else []
    return [batch for batch in found if batch is not None]


def _holds(context: ReaderContext, listing: Listing, head: Area, stored: Mapping[str, StoredHold]) -> list[HoldView]:
    standing = {reader: found.hold for reader, found in stored.items() if not found.hold.revoked}
    meet = meet_all(hold.since for hold in standing.values())
    lowest = min((hold.version for hold in standing.values() if hold.version is not None), default=None)
    now = context.runtime.clock.now_ms()
    return [
        HoldView(
            reader=reader,
            note=found.hold.note,
            version=None if found.damage else found.hold.version,
            since="" if found.damage else str(found.hold.since),
            lease_ms=found.hold.lease_ms,
            idle_ms=max(0, now - listing.holds[reader]),
            revoked=found.hold.revoked,
            holds_since=reader in standing and any(time in meet.elements for time in found.hold.since.elements),
            holds_floor=reader in standing and lowest is not None and found.hold.version == lowest < head.version,
            damage=found.damage,
        )
        for reader, found in sorted(stored.items())
    ]


async def _garbage(
    context: ReaderContext,
    listing: Listing,
    pending: Sequence[PendingBatch],
    head: Area,
    lowest: int,
    picture: Picture | None,
) -> GarbageView:
    foreign = len(listing.foreign)
    if picture is None:
        return GarbageView(known=False, foreign=foreign)
    merged = {found.key: found for found in picture.dead_merged(head.epoch)}
    epochs = {key: name.epoch for key, name, _ in listing.merged}
    flying = sum(epochs[key] == head.epoch and not head.deleted for key in merged)
    is_compare = context.appends is Appends.COMPARE
    files = [PendingFile(str(batch.name), batch.lower, None if is_compare else batch.upper) for batch in pending]
    dead = {found.key for found in picture.dead_pending(files)}
    sizes = {key: size for key, _, size in listing.merged} | {listed.key: listed.nbytes for listed in listing.pending}
    garbage_keys = {key for key in merged if epochs[key] != head.epoch or head.deleted} | dead
    stored = await context.answered("a listing of versions", context.versions.stored)
    return GarbageView(
        known=True,
        merged=len(merged) - flying,
        pending=len(dead),
        nbytes=sum(sizes[key] for key in garbage_keys),
        flying=flying,
        versions=sum(ref.version < min(lowest, head.version) for ref in stored),
        foreign=foreign,
    )
