"""A frame of rows inside a streaming query: each micro-batch sees the database as it is then.

Spark plans such a frame once, so all micro-batches would see the one checkpoint of its plan, until that expires. The
tasks of a micro-batch agree on a checkpoint of its own instead: of those with its name the first one in the manifest.
They read the ranges of keys that were planned, which cover the same keys of any state.

A checkpoint of a micro-batch is deleted once its query makes one for a later batch, for whichever frame. A task of an
earlier batch that begins after that, say a speculative copy, fails and leaves those of the later batch alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import slate_async as slate
from slate_async.spark.lease import Lease
from slate_async.spark.micro_batch import MicroBatch
from slate_async.spark.plan import ReadPlan
from slate_async.spark.read_options import ReadOptions

_NAME = re.compile(r"(?P<frame>.+) in query (?P<query>.+), batch (?P<batch>\d+)")


class _Kept(NamedTuple):
    """A checkpoint of ``frame`` in a micro-batch of that number."""

    frame: str
    batch_id: int
    info: slate.CheckpointInfo


async def plan_of_batch(plan: ReadPlan, batch: MicroBatch | None, environment: slate.Environment) -> ReadPlan:
    """``plan`` with the checkpoint of ``batch``; as it is if it reads a checkpoint, or a time, that the user named.
    Raises `ConflictError` if a later batch of the query has begun to read this frame."""
    options = plan.options
    if batch is None or plan.lease is None or options.at_seq is not None or options.at_time is not None:
        return plan
    lease = await lease_of_batch(f"spark read {plan.checkpoint}", options, batch, environment)
    return replace(plan, checkpoint=str(lease.checkpoint), lease=lease)


async def lease_of_batch(frame: str, options: ReadOptions, batch: MicroBatch, environment: slate.Environment) -> Lease:
    """The checkpoint of ``batch`` for what is called ``frame``: the one that is there, or a new one. Raises
    `ConflictError` as `plan_of_batch`."""
    async with environment.open_admin(options.path, metastore=options.metastore) as admin:
        now_s = environment.runtime.clock.now_ms() / 1000
        found = await _agreed(admin, frame, batch, options.lifetime_s, now_s)
    return Lease(options.path, options.metastore, found.id, options.lifetime_s, int(found.create_time * 1000))


async def _agreed(
    admin: slate.Admin, frame: str, batch: MicroBatch, lifetime_s: float, now_s: float
) -> slate.CheckpointInfo:
    kept = await _kept(admin, batch.query_id, now_s)
    if (there := _first(kept, frame, batch.batch_id)) is not None:
        return there
    name = f"{frame} in query {batch.query_id}, batch {batch.batch_id}"
    made = await admin.checkpoints.create(lifetime=lifetime_s, name=name)
    kept = await _kept(admin, batch.query_id, now_s)
    try:
        first = _first(kept, frame, batch.batch_id) or made
    except slate.ConflictError:
        await _delete(admin, [made])
        raise
    earlier = [other.info for other in kept if other.batch_id < batch.batch_id]
    await _delete(admin, earlier if first.id == made.id else [made])
    return first


def _first(kept: Iterable[_Kept], frame: str, batch_id: int) -> slate.CheckpointInfo | None:
    """The first one of the frame in that batch. Raises `ConflictError` if it has one in a later batch."""
    of_frame = [other for other in kept if other.frame == frame]
    if (newest := max((other.batch_id for other in of_frame), default=batch_id)) > batch_id:
        raise slate.ConflictError(f"this task is of micro-batch {batch_id}, and micro-batch {newest} has begun")
    return next((other.info for other in of_frame if other.batch_id == batch_id), None)


async def _kept(admin: slate.Admin, query_id: str, now_s: float) -> list[_Kept]:
    """What is kept for batches of the query, in the manifest's order."""
    kept = []
    for info in await admin.checkpoints.list():
        named = _NAME.fullmatch(info.name or "")
        alive = info.expire_time is None or info.expire_time > now_s
        if alive and named is not None and named["query"] == query_id:
            kept.append(_Kept(named["frame"], int(named["batch"]), info))
    return kept


async def _delete(admin: slate.Admin, useless: Iterable[slate.CheckpointInfo]) -> None:
    for info in useless:
        with suppress(slate.NotFoundError):  # another task deleted it
            await admin.checkpoints.delete(info.id)
