"""The compactor of one database: claims the role, plans, registers, runs, commits.

One task decides (claim, plan, register, move); each registered compaction runs in a task of its own. A compaction that
an earlier compactor left goes on where that one stopped. Losing the role ends the compactor with `FencedError`;
a store that does not answer only makes it wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import anyio

from slate_async.engine.compaction.history import keep_above
from slate_async.engine.compaction.job import CompactionContext, Job, Sources
from slate_async.engine.compaction.log_source import LogLook, LogSource
from slate_async.engine.compaction.manual import Manual
from slate_async.engine.compaction.progress import CompactionEvent
from slate_async.engine.compaction.ranges import split
from slate_async.engine.compaction.spec import CompactionSpec, LogSst, PlannerConfig
from slate_async.engine.compaction.sweep import hidden_whole
from slate_async.errors import ConflictError, FencedError, InvalidError, NotFoundError, SlateError, UnavailableError
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.manifest.compaction_inputs import Inputs
from slate_async.storage.manifest.edits.compactions import (
    ClaimCompactor,
    MoveSsts,
    RegisterCompaction,
    ReleaseCompactor,
)
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.edits.range_deletes import DropHidden
from slate_async.storage.manifest.state import Compaction, ManifestState

logger = logging.getLogger(__name__)
LOG_POSITIONS = 1_024
"""Positions of a log without a WAL that are looked at, at first; more if they are all fences."""
OFFLOAD_SSTS = 500
"""Planning over more SSTs than this takes over a millisecond: do it off the loop."""
CONFLICTS = 8
"""So many plans in a row that what they were made of has outrun are followed by a pause."""
LONGEST_PAUSE_S = 60.0
"""Between tries of a compaction that keeps failing for want of an answer."""


@dataclass(slots=True, eq=False)
class _Request:
    """A `Manual` in the queue, and how many compactions it took so far."""

    manual: Manual
    done: asyncio.Future[int]
    planned: bool = False
    compactions: int = 0


@dataclass(slots=True)
class _Failure:
    """Tries of a compaction that ended without an answer of a store."""

    times: int
    not_before: float


class CompactorHost(Protocol):
    """What a compactor lives in: a process of its own, or a writer's."""

    def new_token(self) -> str:
        """The mark of a claim, unlike any other's."""

    async def head(self) -> ManifestState | None:
        """The newest state known; ``None`` if there is no database any more."""

    def log_due(self) -> bool:
        """Whether a look at the log (without a WAL) may find something."""

    def committed(self) -> None:
        """A compaction made a state; called after each."""


class Compactor:
    """See the module docstring.

    of: the database and the store id that were looked at
    interval_s: between looks at the head; ``None``: the owner calls `notify`
    auto_compaction: whether to compact without being asked
    """

    def __init__(
        self,
        context: CompactionContext,
        *,
        name: str,
        host: CompactorHost,
        of: tuple[UUID, UUID | None],
        runtime: Runtime,
        supervisor: Supervisor,
        interval_s: float | None = None,
        auto_compaction: bool = True,
    ) -> None:
        self._context = context
        self._name = name
        self._host = host
        self._of = of
        self._token = ""
        self._runtime = runtime
        self._supervisor = supervisor
        self._interval_s = interval_s
        self._auto_compaction = auto_compaction
        self._config = PlannerConfig.of(context.settings)
        self._wake = asyncio.Event()
        self._jobs: dict[UUID, asyncio.Task[bool]] = {}
        self._failures: dict[UUID, _Failure] = {}
        self._requests: deque[_Request] = deque()
        self._conflicts = 0
        self._closed: Callable[[], SlateError] | None = None
        self.epoch = 0

    # ---- for its owner

    def notify(self) -> None:
        """Something changed: look whether there is work."""
        self._wake.set()

    @property
    def running(self) -> int:
        """Compactions under way in this process."""
        return len(self._jobs)

    async def compact(self, manual: Manual) -> int:
        """Carry out ``manual`` after what is under way; how many compactions that took. May be cancelled: what was
        begun goes on. Raises what ended the compactor, and `InvalidError` for a level that does not exist."""
        if self._closed is not None:
            raise self._closed()
        request = _Request(manual, asyncio.get_running_loop().create_future())
        self._requests.append(request)
        self._wake.set()
        return await request.done

    @property
    def asked(self) -> bool:
        """Whether a call waits for a compaction."""
        return any(not request.done.done() for request in self._requests)

    def refuse(self, failure: Callable[[], SlateError]) -> None:
        """Fail every request for a compaction with an error that ``failure`` makes."""
        requests = list(self._requests)
        self._requests.clear()
        for request in requests:
            if not request.done.done():
                request.done.set_exception(failure())

    def close(self, failure: Callable[[], SlateError]) -> None:
        """It has ended for good: as `refuse`, from now on."""
        self._closed = failure
        self.refuse(failure)

    async def claim(self) -> None:
        """Take the role. Raises `InvalidError` (destroyed, uninitialized), `FencedError` (another place is the
        database's by now, or another database made in this one), `UnavailableError`."""
        self._token = self._host.new_token()
        state = await self._context.driver.commit(ClaimCompactor(self._token, self._of))
        self.epoch = state.compactor_epoch
        self._failures.clear()
        logger.info("%s: compactor epoch %d, %d compactions to resume", self._name, self.epoch, len(state.compactions))

    async def release(self) -> None:
        """Give the role up, if it has it, so that another compactor need not wait."""
        if self.epoch:
            await self._context.driver.commit(ReleaseCompactor(self._token))
            self.epoch = 0

    async def run(self, *, while_asked: bool = False) -> None:
        """Claim the role unless it is held, and compact: for ever, or ``while_asked``, until no call waits for one.

        Raises `FencedError`, `CorruptionError`, `InternalError`, and what `claim` raises. What it ran has ended by
        then; the next compactor resumes it."""
        if not self.epoch:
            await self.claim()
        try:
            while self.asked or not while_asked:
                self._wake.clear()
                try:
                    again = await self._round()
                except UnavailableError as error:
                    logger.warning("%s: no compaction could be planned, trying again: %s", self._name, error)
                    again = False
                if not again:
                    with anyio.move_on_after(self._interval_s):  # None: no limit
                        await self._wake.wait()
        except FencedError:
            self.epoch = 0
            raise
        finally:
            await self._stop()

    async def _stop(self) -> None:
        tasks = list(self._jobs.values())
        self._jobs.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- one round

    async def _round(self) -> bool:
        """Start what can start now. Whether another round should follow at once."""
        self._reap()
        state = await self._host.head()
        if state is None:
            raise NotFoundError(f"there is no database at {self._name} any more")
        if state.compactor_epoch != self.epoch:
            raise self._fenced(state)
        check_usable(state)
        self._resume(state)
        while self._requests and self._requests[0].done.done():
            self._requests.popleft()  # answered, or its caller was cancelled
        if not self._requests:
            return self._auto_compaction and await self._start(state, Manual())
        return await self._serve(state, self._requests[0])

    async def _serve(self, state: ManifestState, request: _Request) -> bool:
        """Take the next step of a request, alone: nothing else is planned meanwhile."""
        if self._jobs or state.compactions:
            return False
        try:
            if request.manual.until_rest or not request.planned:
                request.planned = True
                if await self._start(state, request.manual, request):
                    return True
        except InvalidError as error:
            if not request.done.done():
                request.done.set_exception(error)
        if not request.done.done():
            request.done.set_result(request.compactions)
        return True

    def _fenced(self, state: ManifestState) -> FencedError:
        return FencedError(f"compactor epoch {state.compactor_epoch} took over from epoch {self.epoch}")

    # ---- planning

    async def _start(self, state: ManifestState, manual: Manual, request: _Request | None = None) -> bool:
        """Register, or move, what ``manual`` plans on ``state``. Whether anything was."""
        log: tuple[LogSst, ...] = ()
        if any(compaction.log_end is not None for compaction in state.compactions):
            return False  # what else may run depends on what that one took; it is not for long
        if self._context.log is not None and (request is not None or self._host.log_due()):
            look = await self._look(self._context.log)
            state, log = look.state, tuple(reversed(look.ssts))
        now_ms = self._runtime.clock.now_ms()
        started = False
        if hidden := hidden_whole(state, keep_above(state, now_ms, log)):
            state = await self._context.driver.commit(DropHidden(self.epoch, hidden))
            self._host.committed()
        for spec in await self._planned(manual, state, now_ms, log):
            try:
                await self._carry_out(state, spec, now_ms, log)
            except ConflictError as conflict:
                self._conflicts += 1
                if self._conflicts % CONFLICTS == 0:
                    raise UnavailableError(
                        f"other commits overtook {CONFLICTS} compaction plans in a row, the last one: {conflict}"
                    ) from conflict
                logger.info("%s: planning again: %s", self._name, conflict)
                return True
            started, self._conflicts = True, 0
            if request is not None:
                request.compactions += 1
            head = self._context.driver.head
            state = state if head is None else head
        return started

    async def _planned(
        self, manual: Manual, state: ManifestState, now_ms: int, log: Sequence[LogSst]
    ) -> list[CompactionSpec]:
        def work() -> list[CompactionSpec]:
            return manual.plan(state, now_ms, self._config, log)

        many = sum(1 for _ in state.ssts()) > OFFLOAD_SSTS
        return await self._runtime.offload.run(work) if many else work()

    async def _look(self, source: LogSource) -> LogLook:
        """The log's SSTs, enough of them to plan by."""
        limit = LOG_POSITIONS
        while True:
            look = await source.look(limit=limit)
            reached = look.end - look.state.log_start + 1
            if reached < limit or len(look.ssts) >= self._config.max_merge_width:
                return look
            limit *= 4

    async def _carry_out(self, state: ManifestState, spec: CompactionSpec, now_ms: int, log: Sequence[LogSst]) -> None:
        target = state.last_run_id + 1 if spec.target_run is None else spec.target_run
        inputs = Inputs(spec.l0, spec.runs, spec.ssts)
        if spec.move:
            await self._context.driver.commit(MoveSsts(self.epoch, inputs, target, spec.target_level))
            self._context.stats.moved += 1
            self._context.emit(CompactionEvent("moved", None, spec.target_level))
            self._host.committed()
            return
        compaction = Compaction(
            id=self._runtime.ids.uuid(),
            epoch=self.epoch,
            base_version=state.version,
            expired_at_ms=now_ms - state.retention_ms,
            keep_above=keep_above(state, now_ms, log),
            bottom=spec.bottom,
            l0=spec.l0,
            runs=spec.runs,
            ssts=spec.ssts,
            target_run=target,
            target_level=spec.target_level,
            log_end=spec.log_end,
            bounds=await self._bounds(self._sources(state, spec, inputs, log)),
        )
        await self._context.driver.commit(RegisterCompaction(compaction))
        self._context.stats.begun += 1
        self._run_job(compaction)

    async def _bounds(self, sources: Sources) -> tuple[bytes, ...]:
        try:
            yield_budget = YieldBudget(self._runtime.clock)
            return await split(sources, self._context.open_sst, self._context.settings.sst_bytes, yield_budget)
        except ObjectNotFoundError as error:
            raise ConflictError(f"{error.key}, an input of the plan, was deleted", outcome="not_applied") from error

    def _sources(self, state: ManifestState, spec: CompactionSpec, inputs: Inputs, log: Sequence[LogSst]) -> Sources:
        found = inputs.find(state)
        if found is None:
            raise ConflictError("another commit removed an input of the plan", outcome="not_applied")
        end = spec.log_end
        logged = () if end is None else tuple((sst.ref,) for sst in log if sst.position <= end)
        return (*logged, *found)

    # ---- running

    def _resume(self, state: ManifestState) -> None:
        """Run the registered compactions that do not run: an earlier compactor's, and those that failed a while ago."""
        now = self._runtime.clock.monotonic()
        for compaction in state.compactions:
            failure = self._failures.get(compaction.id)
            if compaction.id in self._jobs or (failure is not None and now < failure.not_before):
                continue
            self._context.stats.resumed += 1
            self._run_job(compaction, resumed=True)

    def _run_job(self, compaction: Compaction, *, resumed: bool = False) -> None:
        work = Job(self._context, compaction, resumed=resumed).run()
        task = self._supervisor.spawn(f"compaction {compaction.id}", work, critical=False)
        task.add_done_callback(lambda _: self._wake.set())
        self._jobs[compaction.id] = task

    def _reap(self) -> None:
        """Take the results of the compactions that ended. Raises what ends the compactor."""
        for compaction_id in [job_id for job_id, task in self._jobs.items() if task.done()]:
            task = self._jobs.pop(compaction_id)
            if task.cancelled():
                continue  # by code that cancels every task; the next round runs it again
            try:
                committed = task.result()
            except UnavailableError as error:
                self._put_off(compaction_id, error)
                continue
            self._failures.pop(compaction_id, None)
            if committed:
                self._host.committed()

    def _put_off(self, compaction_id: UUID, error: UnavailableError) -> None:
        times = 1 if (before := self._failures.get(compaction_id)) is None else before.times + 1
        pause = min(LONGEST_PAUSE_S, 2.0 ** min(times - 1, 16))
        self._failures[compaction_id] = _Failure(times, self._runtime.clock.monotonic() + pause)
        self._context.stats.failed += 1
        logger.warning("%s: compaction %s failed and is retried in %.1f s: %s", self._name, compaction_id, pause, error)
        self._context.emit(CompactionEvent("failed", compaction_id, 0, message=str(error)))
