"""What is pending beyond the merged area, read in order and cut where it is known already (C4).

Of a ``definite`` collection all shards are listed, and the batch that reaches furthest is taken each time. A
``compare`` collection is one chain: each batch is looked for under the frontier that the one before it has come to
(C7). Names of u64 times sort as they do, so what comes next can be read ahead.

What a writer of this process put lately is taken from its memory, so that only the listing is a request.

Invariant: a few batches are in memory, or one part of a large one.

Rules C4 and C7 of collections.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from slate_async.codec.arrays import is_larger, mask_array
from slate_async.collections.codec.life import Appends
from slate_async.collections.codec.pending import Pending
from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.chain import Link, Walk
from slate_async.collections.core.coverage import Taken, extend
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import HashedFrontier, PendingName, frontier_name
from slate_async.collections.core.times import TimeKind
from slate_async.collections.store.pending import OFFLOAD_BYTES
from slate_async.errors import CorruptionError
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.runtime.gather import gather

PARALLEL_READS = 16
READ_BYTES = 8 << 20
"""Batches are read together up to so many bytes."""


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A whole pending batch, as it was listed. ``upper``: equals lower where the name does not say it (C7)."""

    name: PendingName
    lower: Frontier
    upper: Frontier
    nbytes: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Updates of one batch, in one table, trimmed. ``upper``: what is covered once all pieces of this batch are taken.

    first: whether this is the batch's first piece
    token: of its append"""

    updates: pa.Table
    upper: Frontier
    token: str
    first: bool


async def list_pending(context: ControllerContext, covered: Frontier) -> list[PendingBatch]:
    """Whole batches that may extend ``covered``, by one listing, in the order of their names."""
    found = []
    async for listed in context.pending.list():
        name = listed.name
        if name.part is not None or (name.upper is None) != (context.appends is Appends.COMPARE):
            continue
        lower, upper = name.lower, name.lower if name.upper is None else name.upper
        if isinstance(lower, HashedFrontier) or isinstance(upper, HashedFrontier):
            described = await context.pending.describe(name)
            if described is None:
                continue
            lower, upper = described.lower, described.lower if name.upper is None else described.upper
        if name.upper is not None and not lower <= upper:
            continue
        found.append(PendingBatch(name, lower, upper, listed.nbytes))
    return [batch for batch in found if may_extend(batch, covered)]


def may_extend(batch: PendingBatch, covered: Frontier) -> bool:
    """Whether anything of ``batch`` may be beyond ``covered``. Of a chain, what begins before it is dead (C7)."""
    return covered <= batch.lower if batch.name.upper is None else not batch.upper <= covered


def has_work(batches: Sequence[PendingBatch], covered: Frontier, appends: Appends) -> bool:
    """Whether one of ``batches`` extends ``covered`` for certain."""
    if appends is Appends.COMPARE:
        return any(batch.lower == covered for batch in batches)
    return bool(extend(covered, batches, limit=1).taken)


def pieces(
    context: ControllerContext, batches: Sequence[PendingBatch], covered: Frontier
) -> AsyncGenerator[Piece, None]:
    """All that takes ``covered`` on, in order; rows that are covered already are left out.

    Raises `ObjectNotFoundError` for a batch that is missing: another controller may have taken it in, and collected it;
    `CorruptionError`, `UnavailableError`."""
    if context.appends is Appends.COMPARE:
        return _chain(context, batches, covered)
    return _shards(context, batches, covered)


async def _shards(
    context: ControllerContext, batches: Sequence[PendingBatch], covered: Frontier
) -> AsyncGenerator[Piece, None]:
    waiting = list(extend(covered, batches).taken)
    while waiting:
        together = _together([taken.batch for taken in waiting])
        reads = await gather([_read(context, taken.batch.name) for taken in waiting[:together]])
        for taken, read in zip(waiting[:together], reads, strict=True):
            if read is None:
                raise ObjectNotFoundError(context.pending.where(taken.batch.name))
            async for piece in _trimmed(context, taken, read):
                yield piece
        del waiting[:together]


async def _chain(
    context: ControllerContext, batches: Sequence[PendingBatch], covered: Frontier
) -> AsyncGenerator[Piece, None]:
    places = {frontier_name(batch.lower): number for number, batch in enumerate(batches)}
    ahead: dict[str, Pending | None] = {}
    walk = Walk(covered, covered)
    while not walk.at.is_done and (key := frontier_name(walk.at)) in places:
        batch = batches[places[key]]
        if key not in ahead:
            following = batches[places[key] :] if context.schema.kind is TimeKind.U64 else [batch]
            names = [found.name for found in following[: _together(following)]]
            reads = await gather([_read(context, name) for name in names])
            ahead = {frontier_name(name.lower): read for name, read in zip(names, reads, strict=True)}
        read = ahead.pop(key)
        if read is None:
            raise ObjectNotFoundError(context.pending.where(batch.name))
        said = read.description
        walk = walk.past(Link(said.lower, said.upper, said.token), context.pending.where(batch.name))
        whole = PendingBatch(batch.name, said.lower, said.upper, batch.nbytes)
        async for piece in _trimmed(context, Taken(whole, said.lower, said.upper), read):
            yield piece


async def _trimmed(
    context: ControllerContext, taken: Taken[PendingBatch], read: Pending
) -> AsyncGenerator[Piece, None]:
    """The pieces of one batch. C4: rows at times beyond where it is taken from."""
    said, where = read.description, context.pending.where(taken.batch.name)
    bounds = Bounds(said.lower, said.upper, said.lower)
    if read.updates is not None:
        yield Piece(await _cut(context, read.updates, bounds, taken, where), taken.end, said.token, True)
        return
    first = True
    async for table in context.pending.parts(taken.batch.name, said):
        yield Piece(await _cut(context, table, bounds, taken, where), taken.end, said.token, first)
        first = False


async def _cut(
    context: ControllerContext, table: pa.Table, bounds: Bounds, taken: Taken[PendingBatch], where: str
) -> pa.Table:
    def cut() -> pa.Table:
        batches = []
        for batch in table.to_batches():
            times = context.schema.times(batch)
            if not bounds.mask(times).all():
                text = f"it has times that are not from {bounds.lower} to {bounds.upper}"
                raise CorruptionError(text, object_name=where)
            batches.append(batch if is_whole(taken) else batch.filter(mask_array(taken.start.mask(times))))
        return pa.Table.from_batches(batches, context.schema.arrow)

    return await context.runtime.offload.run(cut) if is_larger(table, OFFLOAD_BYTES) else cut()


def is_whole(taken: Taken[PendingBatch]) -> bool:
    """C4: whether no row was covered before."""
    return taken.is_whole


async def _read(context: ControllerContext, name: PendingName) -> Pending | None:
    """The batch called ``name``, which was listed; without a request if a writer of this process put it lately."""
    put = context.acknowledged.named(name)
    if put is not None:
        return await context.pending.decoded(name, put.data)
    return await context.answered(f"a read of {name}", partial(context.pending.read, name))


def _together(batches: Sequence[PendingBatch]) -> int:
    """How many of ``batches`` to read at once: one at least."""
    count, nbytes = 0, 0
    for batch in batches[:PARALLEL_READS]:
        nbytes += batch.nbytes
        if count and nbytes > READ_BYTES:
            break
        count += 1
    return count
