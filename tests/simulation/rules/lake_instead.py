"""What stands in for a rule of collections that a role of the product keeps, and that is switched off."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from metastores.protocol import Committed, Conflict, Unknown
from slate_async.collections import deletion
from slate_async.collections.codec.description import Description
from slate_async.collections.codec.hold import encode_hold
from slate_async.collections.codec.life import Appends, Life
from slate_async.collections.codec.pending import Pending
from slate_async.collections.controller import collect, pending
from slate_async.collections.controller.absorb import Absorption
from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.controller.flights import Flights
from slate_async.collections.controller.pending import PendingBatch, Piece
from slate_async.collections.controller.service import ControllerService
from slate_async.collections.controller.standby import StandbyController
from slate_async.collections.controller.sweep import Sweep
from slate_async.collections.core import names, times
from slate_async.collections.core.area import Area
from slate_async.collections.core.coverage import extend
from slate_async.collections.core.edits import Absorb, Publish, check_epoch
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.garbage import Listed, PendingEnds, Picture
from slate_async.collections.core.holding import Handle, Hold, StoredHold, Verdict
from slate_async.collections.core.names import COMPARE_SHARD, MergedName, PendingName
from slate_async.collections.core.sweep import Listing
from slate_async.collections.core.times import Times
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.reader.pins import Pins
from slate_async.collections.reader.renewal import KeptHold
from slate_async.collections.reader.sources import Selection
from slate_async.collections.store.conditional import Written, put_if
from slate_async.collections.store.holds import HoldStore
from slate_async.collections.store.lives import BeginLife
from slate_async.collections.store.pending import Listed as ListedPending
from slate_async.collections.store.pending import PendingStore
from slate_async.collections.store.versions import AreaVersions
from slate_async.objectstore.protocol import ObjectNotFoundError


async def write_over(self: HoldStore, reader: str, hold: Hold, etag: str | None) -> Written:
    """C10: over whatever is there."""
    store: Any = self._store
    if etag is None:
        return await put_if(store, names.hold_name(reader), encode_hold(hold), etag)
    return Committed(await store.put(names.hold_name(reader), encode_hold(hold)))


async def look_late(
    context: ControllerContext, lowest: int, flights: Flights, known: dict[int, Area]
) -> Picture | None:
    """C24: files are listed after the versions were read."""
    head = await context.versions.load()
    wanted = Listed(lowest, (), frozenset()).at(head)
    versions = await context.versions.read_range(min(wanted.versions, default=head.version), head, context.answered)
    picture = Picture.of(wanted, versions)
    if picture is None:
        return None
    files = tuple(await collect.list_merged(context.store, context.schema))
    return replace(picture, listed=Listed(lowest, files, flights.names))


def in_one_folder(self: BeginLife, life: Life) -> Life | None:
    """C28: the next life has the folder of the one before it."""
    began = _begin(self, life)
    return None if began is None else replace(began, number=life.number)


_begin = BeginLife.apply


# ---- times


def joined(self: Frontier, columns: Times) -> Times:
    """C1: the elements of a frontier are joined, not met."""
    return reduce(lambda found, element: times.advance_by(found, [element]), self.elements, columns)


# ---- readers


def untrimmed(self: Selection, updates: Any, covered: Frontier | None) -> Any:
    """C4: a snapshot takes rows that were covered before."""
    return _of_unsorted(self, updates, None)


_of_unsorted = Selection.of_unsorted


async def unlooked(self: KeptHold) -> None:
    """C14: what was read of a chain counts without a look at the own hold."""


def newest(self: Pins, version: int) -> int:
    """C13: the hold moves to the newest version, whatever is read under an older one."""
    return version


def damaged(handle: Handle, stored: StoredHold | None, head: Area) -> Verdict:
    """C15: what is missing is damage, whatever became of the own hold."""
    return Verdict.DELETED if head.deleted else Verdict.CORRUPTED


# ---- writers

Outcome = Committed[str] | Conflict[Description] | Unknown


async def taken_for_answered(self: PendingStore, name: PendingName, data: bytes) -> Outcome:
    """C6: a put without an answer is taken for one that was answered yes."""
    outcome = await _put(self, name, data)
    return Committed("") if isinstance(outcome, Unknown) else outcome


async def put_by_both(self: PendingStore, name: PendingName, data: bytes) -> Outcome:
    """C7: names of compare batches say both bounds, so that two may follow the same one."""
    if name.writer == COMPARE_SHARD:
        name = replace(name, upper=(await self.decoded(name, data)).description.upper)
    return await _put(self, name, data)


async def _by_lower(self: PendingStore, name: PendingName) -> PendingName:
    """The first batch that begins where ``name`` says."""
    if name.writer == COMPARE_SHARD and name.upper is None and name.part is None:
        async for found in _list(self, COMPARE_SHARD):
            if found.name.lower == name.lower and found.name.part is None:
                return found.name
    return name


async def describe_by_lower(self: PendingStore, name: PendingName) -> Description | None:
    """C7: the first one."""
    return await _describe(self, await _by_lower(self, name))


async def look_by_lower(self: PendingStore, name: PendingName) -> tuple[Description, Pending | None] | None:
    """C7: the first one."""
    return await _look(self, await _by_lower(self, name))


async def read_by_lower(self: PendingStore, name: PendingName) -> Pending | None:
    """C7: the first one."""
    return await _read(self, await _by_lower(self, name))


async def list_by_lower(
    self: PendingStore, writer: str | None = None, *, after: PendingName | None = None
) -> AsyncIterator[ListedPending]:
    """C7: who lists a chain leaves the uppers out."""
    async for found in _list(self, writer, after=after):
        is_chain = found.name.writer == COMPARE_SHARD
        yield found._replace(name=replace(found.name, upper=None)) if is_chain else found


_put, _describe, _look, _read = PendingStore.put, PendingStore.describe, PendingStore.look, PendingStore.read


# ---- controllers


def straddling(
    context: ControllerContext, batches: Sequence[PendingBatch], covered: Frontier
) -> AsyncGenerator[Piece, None]:
    """C7: batches of a chain are taken wherever they begin."""
    return (
        _straddling(context, batches, covered)
        if context.appends is Appends.COMPARE
        else _pieces(context, batches, covered)
    )


async def _straddling(
    context: ControllerContext, batches: Sequence[PendingBatch], covered: Frontier
) -> AsyncGenerator[Piece, None]:
    described = []
    for batch in batches:
        if (said := await context.pending.describe(batch.name)) is not None:
            described.append(replace(batch, upper=said.upper))
    for taken in extend(covered, described).taken:
        if (read := await context.pending.read(taken.batch.name)) is None:
            raise ObjectNotFoundError(str(taken.batch.name))
        async for piece in pending._trimmed(context, taken, read):
            yield piece


_pieces = pending.pieces


async def ignored(self: Sweep, name: str, stored: StoredHold) -> bool:
    """C19: a lease that ran out is taken for revoked."""
    return True


def absorbed_anywhere(self: Absorb, area: Area) -> Area | None:
    """C21: what was absorbed is applied wherever the collection ends by now."""
    check_epoch(area, self.epoch)
    if self.batch.name in area.names():
        return None
    bounds = replace(self.batch.bounds, lower=area.upper)
    batches = (*area.batches, replace(self.batch, bounds=bounds))
    return area.following(batches=batches, upper=bounds.upper, last=self.last)


def publish_without_holds(self: Publish, area: Area) -> Area | None:
    """C29: without holds, all times are given up that were written."""
    return _publish(self if self.meet is not None else replace(self, meet=area.upper), area)


_publish = Publish.apply


def name_without_token(lower: Frontier, upper: Frontier, epoch: int, token: str) -> MergedName:
    """C23: merged names of an epoch say the bounds only."""
    return MergedName(lower, upper, epoch, "0" * 32)


def listed_once(listing: Listing, number: int) -> bool:
    """C18: holds are listed once."""
    return number > 0


async def remove_holds_last(stores: LifeStores) -> int:
    """C14: what a deleted collection holds goes before its holds."""
    for folder in (names.PENDING_BATCHES, names.MERGED_BATCHES):
        async for keys in deletion._pages(stores.store, folder):
            await stores.store.delete(keys)
    return await _remove_dead(stores)


_remove_dead = deletion.remove_dead


# ---- pending names


def name_of_lower(self: PendingName) -> str:
    """C5: names of definite batches say the lower bound only."""
    return _text(self if self.part is not None else replace(self, upper=self.lower))


_text = PendingName.__str__


async def list_described(
    self: PendingStore, writer: str | None = None, *, after: PendingName | None = None
) -> AsyncIterator[ListedPending]:
    """C5: who lists looks where each batch ends."""
    async for found in _list(self, writer):
        if found.name.part is not None:
            yield found
            continue
        described = await self.describe(found.name)
        if described is not None:
            yield found._replace(name=replace(found.name, upper=described.upper))


_list = PendingStore.list


async def sound_only(self: Sweep) -> dict[str, StoredHold]:
    """C18: a hold that cannot be read keeps nothing."""
    return {name: stored for name, stored in (await _read_all(self)).items() if not stored.damage}


_read_all = Sweep._read_all


# ---- lost versions


def nothing_lost(*_: object) -> None:
    """C30: no version is lost, whatever lies beyond the head."""


def reached(self: PendingEnds, upper: Frontier) -> bool:
    """C30: a batch may end anywhere up to where what is pending ends."""
    return upper <= self.reach


async def counted(self: Absorption) -> bool:
    """C30: what was read of a chain counts without a look at the head."""
    return True


# ---- services


async def without_patience(self: ControllerService, context: ControllerContext, patience_ms: float) -> None:
    """C20: the role is taken back at the next poll."""
    await self._sleep_ms(context.poll_interval_ms)


async def no_patience(self: StandbyController) -> None:
    """C20: the role is taken at the next poll."""
    await self._sleep(self._stores.settings.poll_interval_ms / 1000)


# ---- versions


def fallen(bound: Frontier, meet: Frontier) -> Frontier:
    """C26: the bound goes to what the holds allow now, back too."""
    return meet.coarsened()


async def collect_all(
    self: AreaVersions, lowest: int, head: Area, *, limit: int | None = None, dry_run: bool = False
) -> int:
    """C27: versions that holds need are deleted as well."""
    return await _collect(self, head.version, head, limit=limit, dry_run=dry_run)


_collect = AreaVersions.collect
