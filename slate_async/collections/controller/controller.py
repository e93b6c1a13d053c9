"""`Controller`: keeps one collection: takes in, compacts, publishes, collects. One at a time has the role.

It claims the role when it is opened, by a commit of the next epoch (C20). Another one that claims later fences it: its
next commit raises `FencedError`, and it closes itself with that. Two at once are safe.

States: open -> closed (by `close`, or because it was fenced, because stored bytes are wrong, or because of a bug; then
every call raises the cause). While the store does not answer it logs that and tries again. Once the collection is
deleted it goes on deleting what zombies still put there. All methods belong to the event loop that opened it.

Cancellation: a cancelled call abandons the wait, not what was begun.

Rules C20, C28 and C30 of collections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from slate_async.collections.controller.collect import bury
from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.controller.executor import Executor, LocalExecutor
from slate_async.collections.controller.flights import Flights
from slate_async.collections.controller.lost import check_not_lost
from slate_async.collections.controller.merger import MergeCounts, Mergers
from slate_async.collections.controller.report import RoundReport, buried
from slate_async.collections.controller.round import Counts, Rounds
from slate_async.collections.controller.tasks import Tasks
from slate_async.collections.core.edits import Claim
from slate_async.collections.stats import area_metrics
from slate_async.errors import (
    ClosedError,
    CorruptionError,
    FencedError,
    InternalError,
    Outcome,
    UnavailableError,
)
from slate_async.runtime.loop_handle import LoopHandle
from slate_async.runtime.supervisor import Supervisor

T = TypeVar("T")
MOST_SETTLING_ROUNDS = 1_000


async def open_controller(
    context: ControllerContext,
    *,
    executor: Executor | None = None,
    background: bool = True,
) -> Controller:
    """Become the controller of a collection.

    executor: runs the merges; this process if unset
    background: whether it works by itself; if not, only what is called is done

    Raises `ClosedError` if the collection was deleted, `CorruptionError` if the newest version was lost (C30),
    `UnavailableError`: it may have the role, and hears of that when it is opened again."""
    await check_not_lost(context)
    claimed = await context.versions.commits.commit(Claim(context.runtime.ids.token()))
    chosen = LocalExecutor(context.store, context.runtime.offload) if executor is None else executor
    return Controller(context, claimed.epoch, chosen, background)


class Controller(LoopHandle):
    """Made by `open_controller`; see the module docstring. ``async with`` closes it."""

    epoch: int
    """It has the role until another one claims a higher one."""

    def __init__(
        self,
        context: ControllerContext,
        epoch: int,
        executor: Executor,
        background: bool,
    ) -> None:
        super().__init__(f"the controller of {context.name}")
        self.epoch = epoch
        self._context = context
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._cause: BaseException | None = None
        self._supervisor = Supervisor(f"{context.name}/controller {epoch}", self._fail)
        self._turn = asyncio.Lock()
        flights = Flights()
        self._rounds = Rounds(context, epoch, flights)
        self._mergers = Mergers(context, epoch, flights, executor)
        self._tasks = Tasks(context, self._rounds, self._mergers, self._turn)
        context.acknowledged.attend(self)
        if background:
            self._tasks.start(self._supervisor)

    @property
    def fenced(self) -> bool:
        """Whether another controller took over, as far as this one has noticed."""
        return isinstance(self._cause, FencedError)

    @property
    def counts(self) -> tuple[Counts, MergeCounts]:
        """What was done since it was opened."""
        return self._rounds.counts, self._mergers.counts

    def metrics(self) -> dict[str, int | float]:
        """Counters since it was opened, and what is in the newest version, by dotted name."""
        rounds, merges = self.counts
        head = self._context.versions.head
        return {
            "collections.controller.epoch": self.epoch,
            "collections.controller.fenced": int(self.fenced),
            "collections.controller.rounds": rounds.rounds,
            "collections.controller.absorbed": rounds.appends,
            "collections.controller.absorbed_rows": rounds.rows,
            "collections.controller.revoked": rounds.revoked,
            "collections.controller.merges": merges.merges,
            "collections.controller.lost_merges": merges.lost,
            "collections.controller.rows_in": merges.rows_in,
            "collections.controller.rows_out": merges.rows_out,
            "collections.gc.objects": rounds.deleted_objects,
            "collections.gc.bytes": rounds.deleted_bytes,
            "collections.holds": self._rounds.standing,
            **({} if head is None else area_metrics(head)),
        }

    async def round(self, *, dry_run: bool = False) -> RoundReport:
        """One whole round: holds, absorb, publish, collect. Of a deleted collection all that is left is collected.

        dry_run: change nothing, and tell what would be deleted and why

        Raises `FencedError`, `ClosedError`, `UnavailableError`, `CorruptionError`."""
        return await self._run("a round", self._round(dry_run))

    async def merge(self, *, everything: bool = False) -> int:
        """Do the merges that are due, and all that an idle collection can still do if ``everything``; how many.

        Raises as `round`."""
        return await self._run("merges", self._merge(everything))

    async def settle(self) -> RoundReport:
        """Rounds and merges until nothing is left to do: one batch, compacted as far as the holds allow, no garbage.

        Returns the report of the last round. Raises as `round`, and `UnavailableError` if too much comes in."""
        for _ in range(MOST_SETTLING_ROUNDS):
            report = await self.round()
            if report.deleted or (not await self.merge(everything=True) and not report.changed):
                return report
        raise UnavailableError(f"{self._context.name} did not come to rest; it is written, or read, all the time")

    async def wait_ended(self) -> BaseException | None:
        """Wait until it is closed; what it closed itself with, if it did. May be cancelled."""
        await asyncio.wait([self._ended])
        return self._cause

    async def close(self) -> None:
        """Stop. Idempotent, and may be cancelled: it goes on. What was begun is given up; the next controller goes on
        from the head."""
        await self._end()

    async def _round(self, dry_run: bool) -> RoundReport:
        async with self._turn:
            try:
                return await self._rounds.round(dry_run=dry_run)
            except ClosedError:
                tombstone = await self._context.answered("a read of the head", self._context.versions.load)
                if not tombstone.deleted:
                    raise
                return buried(tombstone, await bury(self._context, tombstone, dry_run=dry_run))

    async def _merge(self, everything: bool) -> int:
        before = self._mergers.counts.merges
        for _ in range(MOST_SETTLING_ROUNDS):
            head = await self._context.answered("a read of the head", self._context.versions.load)
            target = self._rounds.target
            if target is None or head.is_ended:
                break
            inputs = self._mergers.due(head) or (
                self._mergers.exert(head, target, rows=head.rows) if everything else ()
            )
            if not inputs:
                break
            await self._mergers.merge(inputs, target)
        return self._mergers.counts.merges - before

    async def _run(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in a task of its own. What ends a controller ends it."""
        try:
            self._guard.check()
        except BaseException:
            work.close()
            raise
        try:
            return await self._guard.while_open(self._supervisor.run(name, work))
        except (FencedError, CorruptionError, InternalError) as error:
            self._fail(error)
            raise

    def _fail(self, cause: BaseException) -> None:
        """It ended with ``cause``: nothing goes on."""
        if self._cause is None and self._ending is None:
            self._cause = cause
            self._guard.shut()
            self._ending = self._loop.create_task(self._finish_and_release(), name=f"{self._name}/end")

    async def _finish(self) -> None:
        try:
            await self._supervisor.close()
        finally:
            self._context.acknowledged.leave(self)
            self._ended.set_result(None)

    def _refuse(self, outcome: Outcome | None) -> None:
        if self._cause is not None and self._guard.thread is None:
            raise self._cause
        super()._refuse(outcome)
