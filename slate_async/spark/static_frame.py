"""A frame of rows inside a streaming query: each micro-batch sees the database as it is then.

Spark plans such a frame once, so all micro-batches would see the one checkpoint of its plan, until that expires. The
tasks of a micro-batch agree on a checkpoint of its own instead: of those with its name the first one in the manifest.
They read the ranges of keys that were planned, which cover the same keys of any state.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import slate_async as slate
from slate_async.spark.lease import Lease
from slate_async.spark.micro_batch import MicroBatch
from slate_async.spark.plan import ReadPlan


async def plan_of_batch(plan: ReadPlan, batch: MicroBatch | None, environment: slate.Environment) -> ReadPlan:
    """``plan`` with the checkpoint of ``batch``; as it is if it reads a checkpoint, or a time, that the user named."""
    options = plan.options
    if batch is None or plan.lease is None or options.at_seq is not None or options.at_time is not None:
        return plan
    frame = f"spark read {plan.checkpoint} in query {batch.query_id}"
    async with environment.open_admin(options.path, metastore=options.metastore) as admin:
        now_s = environment.runtime.clock.now_ms() / 1000
        found = await _seen_by(admin, frame, f"{frame}, batch {batch.batch_id}", options.lifetime_s, now_s)
    lease = Lease(options.path, options.metastore, found.id, options.lifetime_s, int(found.create_time * 1000))
    return replace(plan, checkpoint=str(found.id), lease=lease)


async def _seen_by(admin: slate.Admin, frame: str, name: str, lifetime_s: float, now_s: float) -> slate.CheckpointInfo:
    """The checkpoint of that name: made here unless it is there already. Those of the batches before are deleted, all
    of whose tasks have ended: their names begin with ``frame``, too."""
    there = next((kept for kept in await _frames(admin, frame, now_s) if kept.name == name), None)
    if there is not None:
        return there
    made = await admin.checkpoints.create(lifetime=lifetime_s, name=name)
    frames = await _frames(admin, frame, now_s)
    first = next((kept for kept in frames if kept.name == name), made)
    useless = [kept for kept in frames if kept.name != name] if first.id == made.id else [made]
    for kept in useless:
        with suppress(slate.NotFoundError):  # another task deleted it
            await admin.checkpoints.delete(kept.id)
    return first


async def _frames(admin: slate.Admin, frame: str, now_s: float) -> list[slate.CheckpointInfo]:
    """Those of the frame that are alive, in the manifest's order."""
    kept = await admin.checkpoints.list()
    alive = (found for found in kept if found.expire_time is None or found.expire_time > now_s)
    return [found for found in alive if (found.name or "").startswith(f"{frame},")]
