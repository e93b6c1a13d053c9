"""`ControllerService`: keeps the collections of a lake, as many as there are, in one process.

Each `gc_interval_ms` it looks which there are. One that is new gets a controller at once, one that was deleted is
visited for what writers that slept still put there. Of each collection nothing but its own controller is busy, so one
that fails holds up no other: it is tried again after a while, and later each time. The same failure is logged once.
Merges of all of them wait in one line.

A controller that was fenced takes the role back only when nothing has come of the other one for `takeover_ms`, though
work waited; and waits twice as long each time. So two services share a lake without taking it from each other.

Rules C20 and C28 of collections.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection
from functools import partial

from slate_async.collections.codec.life import Life, LifeState
from slate_async.collections.controller.context import ControllerContext, controlling
from slate_async.collections.controller.controller import Controller, open_controller
from slate_async.collections.controller.executor import Executor, LocalExecutor, MergeTask
from slate_async.collections.controller.failures import Failures
from slate_async.collections.controller.pending import has_work, list_pending
from slate_async.collections.core.area import MergedBatch
from slate_async.collections.deletion import remove_dead, remove_deleted
from slate_async.collections.lake_context import LakeContext
from slate_async.collections.life_stores import LifeStores
from slate_async.errors import ClosedError, FencedError, SlateError
from slate_async.runtime.loop_handle import LoopHandle
from slate_async.runtime.shared import Taken
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings.fields import MINUTE_MS

logger = logging.getLogger(__name__)
LOOKS = 4
"""At a collection that another controller has, within the time that its work may wait."""
MOST_PATIENCE = 64
LONGEST_PAUSE_MS = 5 * MINUTE_MS
"""Between two tries of what fails: so late at most is one noticed that was mended."""


class OneLine:
    """Merges of many controllers, so many at once; first come, first served."""

    def __init__(self, inner: Executor, at_once: asyncio.Semaphore) -> None:
        self._inner = inner
        self._at_once = at_once

    async def merge(self, task: MergeTask) -> MergedBatch:
        """See `Executor`."""
        async with self._at_once:
            return await self._inner.merge(task)


class ControllerService(LoopHandle):
    """See the module docstring. ``async with`` closes it.

    names: of the collections to keep; all that there are if unset
    executor: makes what runs the merges of a collection; this process if unset"""

    def __init__(
        self,
        lake: LakeContext,
        *,
        names: Collection[str] | None = None,
        executor: Callable[[LifeStores], Executor] | None = None,
    ) -> None:
        super().__init__(f"the controllers of {lake.url}")
        self._lake = lake
        self._names = None if names is None else frozenset(names)
        self._executor = executor
        self._merges = asyncio.Semaphore(lake.settings.parallel_merges)
        self._kept: dict[str, tuple[Life, asyncio.Task[None]]] = {}
        self._controllers: dict[str, Controller] = {}
        self._visits: dict[str, tuple[Failures, float]] = {}  # that failed, and when the next one is due
        self._looks = self._failures()
        self._supervisor = Supervisor(self._name, lambda cause: None)
        self._supervisor.spawn("looks", self._run(), critical=False)

    @property
    def controllers(self) -> dict[str, Controller]:
        """Those that have the role now, by the collection's name."""
        return dict(self._controllers)

    async def close(self) -> None:
        """Close all controllers. Idempotent, and may be cancelled: it goes on."""
        await self._end()

    async def _finish(self) -> None:
        await self._supervisor.close()

    async def _run(self) -> None:
        said = f"{self._lake.url}: the lake is looked at again later"
        while True:
            pause_ms: float = self._lake.settings.gc_interval_ms
            try:
                await self._look()
                self._looks.passed(logger, f"{self._lake.url}: the lake can be looked at again")
            except Exception as error:  # noqa: BLE001 - it is logged
                pause_ms = self._looks.failed(logger, said, error, is_bug=not isinstance(error, SlateError))
            await self._sleep_ms(pause_ms)

    async def _look(self) -> None:
        """Which collections there are now."""
        seen = set()
        async for name in self._lake.names():
            if self._names is None or name in self._names:
                seen.add(name)
                await self._try_to_visit(name)
        for name in set(self._kept) - seen:
            self._leave(name)
        for name in self._visits.keys() - seen:
            del self._visits[name]

    async def _try_to_visit(self, name: str) -> None:
        failures, due_ms = self._visits.get(name, (self._failures(), -math.inf))
        if self._now_ms() < due_ms:
            return
        try:
            await self._visit(name)
        except Exception as error:  # noqa: BLE001 - it holds up no other collection
            said = f"{name}: its controller looks again later"
            pause_ms = failures.failed(logger, said, error, is_bug=not isinstance(error, SlateError))
            self._visits[name] = failures, self._now_ms() + pause_ms
        else:
            self._visits.pop(name, None)
            failures.passed(logger, f"{name}: its controller can look at it again")

    async def _visit(self, name: str) -> None:
        async with self._lake.register(name) as register:
            life = await register.load()
        if life is None:
            return
        if life.state is LifeState.DELETED:
            self._leave(name)
            await self._clear(name, life)
            return
        kept = self._kept.get(name)
        if kept is not None and (kept[0].uuid != life.uuid or kept[1].done()):
            self._leave(name)
        if name not in self._kept:
            task = self._supervisor.spawn(f"controller of {name}", self._keep(name, life), critical=False)
            self._kept[name] = life, task
        await self._clear_earlier(name, life)

    def _leave(self, name: str) -> None:
        if name in self._kept:
            self._kept.pop(name)[1].cancel()

    async def _clear(self, name: str, life: Life) -> None:
        """What is left of a deleted collection."""
        taken = Taken()
        try:
            await remove_deleted(self._lake.take(name, life, taken))
        finally:
            await taken.give_back()
        await self._clear_earlier(name, life)

    async def _clear_earlier(self, name: str, life: Life) -> None:
        for earlier in await self._lake.earlier(name, life):
            try:
                await remove_dead(earlier)
            finally:
                await earlier.close()

    # ---- one collection

    async def _keep(self, name: str, life: Life) -> None:
        """Be its controller; after another one took over, when that does nothing any more."""
        taken = Taken()
        try:
            stores = self._lake.take(name, life, taken)
            await self._keep_stores(name, stores, controlling(stores))
        finally:
            await taken.give_back()

    async def _keep_stores(self, name: str, stores: LifeStores, context: ControllerContext) -> None:
        patience, failures, is_fenced = 1, Failures(context.poll_interval_ms, LONGEST_PAUSE_MS), False
        while True:
            try:
                if is_fenced:  # until the wait has ended, whatever fails meanwhile
                    await self._until_work_waits(context, context.takeover_ms * patience)
                    patience, is_fenced = min(2 * patience, MOST_PATIENCE), False
                cause = await self._serve(name, stores, context, failures)
                if isinstance(cause, FencedError):
                    is_fenced = True
                    continue
                if cause is None:
                    return
                raise cause
            except ClosedError:
                return  # it was deleted; the next look finds what follows
            except Exception as error:  # noqa: BLE001 - it holds up no other collection
                said = f"{name}: its controller ended, or waits for another one; it goes on later"
                await self._sleep_ms(failures.failed(logger, said, error))

    async def _serve(
        self, name: str, stores: LifeStores, context: ControllerContext, failures: Failures
    ) -> BaseException | None:
        local: Executor = LocalExecutor(context.store, context.runtime.offload)
        chosen = local if self._executor is None else self._executor(stores)
        async with await open_controller(context, executor=OneLine(chosen, self._merges)) as controller:
            self._controllers[name] = controller
            began_ms = context.now_ms()
            try:
                return await controller.wait_ended()
            finally:
                self._controllers.pop(name, None)
                if context.now_ms() - began_ms > LONGEST_PAUSE_MS:
                    failures.passed(logger, f"{name}: its controller worked again for a while")

    async def _until_work_waits(self, context: ControllerContext, patience_ms: float) -> None:
        """Return when something was pending for so long, and no version came."""
        seen, since = -1, context.now_ms()
        while True:
            await self._sleep_ms(max(context.poll_interval_ms, patience_ms / LOOKS))
            head = await context.answered("a look at the head", context.versions.poll)
            if head.deleted:
                raise ClosedError(f"{context.name} was deleted")
            if head.version != seen:
                seen, since = head.version, context.now_ms()
                continue
            call = partial(list_pending, context, head.upper)
            batches = await context.answered("a listing of pending batches", call)
            if not has_work(batches, head.upper, context.appends):
                since = context.now_ms()
            elif context.now_ms() - since >= patience_ms:
                return

    def _failures(self) -> Failures:
        interval_ms = self._lake.settings.gc_interval_ms
        return Failures(interval_ms, max(interval_ms, LONGEST_PAUSE_MS))

    def _now_ms(self) -> float:
        return self._lake.runtime.clock.monotonic() * 1000

    async def _sleep_ms(self, duration_ms: float) -> None:
        await self._lake.runtime.clock.sleep(duration_ms / 1000)
