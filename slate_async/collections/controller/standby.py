"""`StandbyController`: a process that writes becomes the controller when its appends wait too long for one.

It looks at the head only while something that its writers appended is not taken in. While versions follow one another a
controller works elsewhere. If none came for `controller_takeover_ms` by the own monotonic clock, it claims the role.

Two controllers are safe, and fence each other. So that processes do not take the role from each other in the midst of
long merges for ever, patience doubles each time this one is fenced.

Rule C20 of collections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from slate_async.collections.controller.context import controlling
from slate_async.collections.controller.controller import Controller, open_controller
from slate_async.collections.controller.failures import Failures
from slate_async.collections.core.area import Area
from slate_async.collections.core.edits import check_open
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.life_stores import LifeStores
from slate_async.errors import ClosedError, FencedError, SlateError, UnavailableError
from slate_async.runtime.supervisor import Supervisor

logger = logging.getLogger(__name__)
LOOKS = 8
"""At the head, within the time that work may wait."""
MOST_PATIENCE = 64
"""Patience doubles up to so many times what the setting says."""


class HasUpper(Protocol):
    """A writer."""

    @property
    def upper(self) -> Frontier:
        """What it has appended, as far as it knows."""


class StandbyController:
    """Of one life, for all writers of a process. `close` it when they have closed."""

    def __init__(self, stores: LifeStores) -> None:
        self._stores = stores
        self._writers: dict[int, HasUpper] = {}
        self._patience = 1
        self._controller: Controller | None = None
        self._supervisor = Supervisor(f"{stores.name}/standby controller", lambda cause: None)
        self._supervisor.spawn("watch", self._watch(), critical=False)

    @property
    def is_serving(self) -> bool:
        """Whether it has the role, as far as it knows."""
        return self._controller is not None

    def add(self, writer: HasUpper) -> Callable[[], None]:
        """Watch what ``writer`` appends too; until what is returned is called."""
        number = id(writer)
        self._writers[number] = writer
        self._stores.pokes.poke()

        def leave() -> None:
            self._writers.pop(number, None)

        return leave

    async def close(self) -> None:
        """Give the role up. Idempotent."""
        await self._supervisor.close()
        if self._controller is not None:
            await self._controller.close()

    async def _watch(self) -> None:
        wait_ms = self._stores.settings.controller_takeover_ms
        failures = Failures(wait_ms, wait_ms * MOST_PATIENCE)
        while True:
            try:
                await self._until_work_waits()
                await self._serve()
                failures.passed(logger, f"{self._stores.name}: its standby controller goes on")
            except ClosedError:
                return  # the collection was deleted
            except SlateError as error:
                said = f"{self._stores.name}: its standby controller looks again later"
                await self._sleep(failures.failed(logger, said, error) / 1000)
            except Exception:
                logger.exception("%s: its standby controller ended", self._stores.name)
                raise

    @property
    def _wait_s(self) -> float:
        return self._stores.settings.controller_takeover_ms * self._patience / 1000

    async def _until_work_waits(self) -> None:
        """Return when something waited for the whole time, and no version came. Raises `ClosedError` if the collection
        was deleted."""
        stores, clock = self._stores, self._stores.runtime.clock
        seen, since = -1, 0.0
        patience = self._wait_s * stores.runtime.rng.uniform(1, 1.25)
        while True:
            noted, head = stores.pokes.count, stores.versions.head
            if head is not None:
                check_open(head)
            if head is not None and not self._is_waiting(head):
                seen = -1
                await stores.pokes.wait(noted, clock, self._wait_s)
                continue
            try:
                head = await stores.versions.poll()
            except UnavailableError:
                seen = -1  # a store that answers nobody keeps no controller's versions back
            else:
                check_open(head)
                now = clock.monotonic()
                if not self._is_waiting(head):
                    continue
                if head.version != seen:
                    seen, since = head.version, now
                elif now - since >= patience:
                    return
            await self._sleep(max(stores.settings.poll_interval_ms / 1000, patience / LOOKS))

    def _is_waiting(self, head: Area) -> bool:
        return any(not writer.upper <= head.upper for writer in self._writers.values())

    async def _serve(self) -> None:
        """Be the controller until another one is."""
        controller = self._controller = await open_controller(controlling(self._stores))
        logger.info("%s: this process is its controller now, epoch %d", self._stores.name, controller.epoch)
        try:
            cause = await controller.wait_ended()
        finally:
            self._controller = None
            await controller.close()
        if isinstance(cause, FencedError):
            self._patience = min(self._patience * 2, MOST_PATIENCE)
            logger.info("%s: %s", self._stores.name, cause)
        elif cause is not None:
            raise cause

    async def _sleep(self, seconds: float) -> None:
        await self._stores.runtime.clock.sleep(seconds)
