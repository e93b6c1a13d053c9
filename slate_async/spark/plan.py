"""What a job reads, cut into key ranges: made once, then read by tasks in any process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

import slate_async as slate
from slate_async.engine.read.bounds import KeyRange
from slate_async.spark.lease import Lease, drop_checkpoint, keep_checkpoint, make_checkpoint
from slate_async.spark.read_options import ReadOptions
from slate_async.spark.worker import ReaderName, this_worker


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What every task of a job reads alike.

    checkpoint: its id
    lease: of a checkpoint that was made for this job, so that its tasks lengthen it
    """

    options: ReadOptions
    checkpoint: str
    lease: Lease | None

    @property
    def reader_name(self) -> ReaderName:
        """The reader its tasks share in a process."""
        return ReaderName(self.options.path, self.options.metastore, self.checkpoint)


class KeyPartition(InputPartition):
    """One range of keys, ``[start, end)``; ``None`` is unbounded."""

    def __init__(self, plan: ReadPlan, start: bytes | None, end: bytes | None) -> None:
        super().__init__((plan, start, end))
        self.plan = plan
        self.start = start
        self.end = end


async def plan_partitions(options: ReadOptions, span: KeyRange, environment: slate.Environment) -> list[KeyPartition]:
    """Fix the read point, and cut ``span`` by bytes."""
    async with read_plan(options, environment) as (plan, seen):
        splits = await seen.splits(span.start, span.end, target_bytes=options.partition_bytes)
    return [KeyPartition(plan, split.start, split.end) for split in splits]


@asynccontextmanager
async def read_plan(
    options: ReadOptions, environment: slate.Environment, made: Lease | None = None
) -> AsyncGenerator[tuple[ReadPlan, slate.Snapshot], None]:
    """What tasks will read, and what it shows. Unless ``options`` name a checkpoint it is fixed by the one that was
    ``made`` for it, or by a new one. A block that fails leaves neither."""
    if options.checkpoint is not None:
        plan = ReadPlan(options, await checkpoint_id(options.checkpoint, options, environment), None)
        async with _open_seen(plan) as seen:
            yield plan, seen
        return
    lease = made or await make_checkpoint(options.path, options.metastore, options.lifetime_s, environment)
    plan = ReadPlan(options, str(lease.checkpoint), lease)
    try:
        async with _open_seen(plan) as seen:
            yield plan, seen
    except Exception:
        await drop_checkpoint(environment, lease)
        raise


async def checkpoint_id(checkpoint: str, options: ReadOptions, environment: slate.Environment) -> str:
    """The id of a checkpoint, given that or a name: names move on, and a reader that stays open would not notice.
    Raises `InvalidError` if there is none."""
    async with environment.open_reader(options.path, checkpoint, metastore=options.metastore) as reader:
        held = reader.status().checkpoint
        assert held is not None
        return held


@asynccontextmanager
async def open_partition(
    partition: KeyPartition, environment: slate.Environment
) -> AsyncGenerator[slate.Snapshot, None]:
    """The database as it is to be read, for a task; the job's own checkpoint is lengthened meanwhile."""
    plan = partition.plan
    async with AsyncExitStack() as stack:
        if plan.lease is not None:
            await stack.enter_async_context(keep_checkpoint(environment, plan.lease))
        yield await stack.enter_async_context(_open_seen(plan))


@asynccontextmanager
async def _open_seen(plan: ReadPlan) -> AsyncGenerator[slate.Snapshot, None]:
    """What the plan's reader shows at the read point of its options."""
    seq, time = plan.options.at_seq, plan.options.at_time
    async with this_worker().reader(plan.reader_name) as reader:
        async with reader.snapshot() if seq is None and time is None else reader.as_of(seq=seq, time=time) as snapshot:
            yield snapshot
