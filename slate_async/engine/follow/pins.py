"""A follower's checkpoints: what keeps the SSTs of its views from being deleted.

Invariant: reads get a state only after the checkpoint that names it is committed (rule 20), and a checkpoint stays,
refreshed, while a view made under it is read from. A reader makes a new checkpoint only when the set of SSTs has
changed. Otherwise it writes nothing until half of a checkpoint's lifetime is over: then it refreshes the checkpoint if
it is in use, else removes it. It removes a replaced checkpoint in the commit that makes the next one.

Rule 20: docs/design/protocol-rules.md
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from slate_async.engine.read.view import ReadView
from slate_async.errors import InvalidError, UnavailableError
from slate_async.runtime.protocol import Runtime
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint, DeleteCheckpoints, RefreshCheckpoint
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)
PATIENCE = 1 / 8
"""Polls make a checkpoint anew once this share of its lifetime has passed, unless it is needed sooner."""
ATTEMPTS = 8
"""How often a checkpoint is made that names another state than the newest one."""


@dataclass(slots=True, eq=False)
class _Held:
    """A checkpoint of ours. ``views``: those made under it that are read from, and the newest one."""

    id: UUID
    made_ms: int
    expire_ms: int
    ssts: frozenset[bytes]
    views: list[ReadView] = field(default_factory=list)

    @property
    def read_from(self) -> bool:
        return any(view.pinned for view in self.views)


class ReaderPins:
    """See the module docstring. ``name`` is the database's, for the log."""

    def __init__(self, driver: ManifestDriver, runtime: Runtime, *, lifetime_ms: int, name: str) -> None:
        self._driver = driver
        self._runtime = runtime
        self._lifetime_ms = lifetime_ms
        self._name = name
        self._current: _Held | None = None
        self._older: list[_Held] = []
        self._unwanted: dict[UUID, None] = {}  # may be in the manifest, and nothing is read under them
        self._pinned: ManifestState | None = None
        self.made = self.refreshed = self.lost = 0

    @property
    def current_id(self) -> UUID | None:
        """The checkpoint that new reads are under."""
        return None if self._current is None else self._current.id

    @property
    def count(self) -> int:
        """Checkpoints held, those of unfinished scans included."""
        return len(self._held())

    def watch(self, view: ReadView) -> None:
        """``view`` is what reads get from now on; it was made of the state that `pin` returned last."""
        if self._current is not None:
            self._current.views = [*(pinned for pinned in self._current.views if pinned.pinned), view]

    def may_wait(self, head: ManifestState) -> bool:
        """Whether ``head`` needs a checkpoint that the current one is too young to give way to: many readers that make
        one each whenever an SST is added would keep the writer from adding the next."""
        if self._current is None or head.checkpoint(self._current.id) is None or self._current.ssts == _ssts(head):
            return False
        return self._runtime.clock.now_ms() - self._current.made_ms < self._lifetime_ms * PATIENCE

    async def pin(self, head: ManifestState) -> ManifestState:
        """``head``, or a newer state, all of whose SSTs a checkpoint of ours names.

        Raises `UnavailableError`, `InvalidError` if the database was destroyed."""
        if self._current is not None and self._pinned is not None and head.version <= self._pinned.version:
            return self._pinned
        self._look_for_lost(head)
        if self._current is not None and self._current.ssts == _ssts(head):
            self._pinned = head
        else:
            self._pinned = await self._make()
        return self._pinned

    async def _make(self) -> ManifestState:
        for _ in range(ATTEMPTS):
            made_id = self._runtime.ids.uuid()
            now = self._runtime.clock.now_ms()
            self._release([pin for pin in self._older if not pin.read_from])
            unwanted = tuple(self._unwanted)
            self._unwanted[made_id] = None
            edit = CreateCheckpoint(made_id, "reader", now, now + self._lifetime_ms, instead_of=unwanted)
            state = await self._driver.commit(edit)
            self._unwanted = {made_id: None}
            made = state.checkpoint(made_id)
            if made is not None and made.ref == state.ref:
                self._unwanted = {}
                if self._current is not None:
                    self._older.append(self._current)
                self._current = _Held(made_id, now, now + self._lifetime_ms, _ssts(state))
                self.made += 1
                return state
            # its outcome was unknown at first, and the head that showed it in is newer than what it names
        raise UnavailableError(
            f"{self._name}: a checkpoint of the newest state could not be made, because other commits kept"
            " overtaking it; try again"
        )

    async def upkeep(self) -> None:
        """Lengthen or remove what has lived for half of its time. Raises `UnavailableError`."""
        now = self._runtime.clock.now_ms()
        due = [pin for pin in self._held() if pin.expire_ms - now < self._lifetime_ms / 2]
        idle = [pin for pin in due if pin is not self._current and not pin.read_from]
        if idle:
            self._release(idle)
            await self._remove()
        for pin in due:
            if pin not in idle:
                await self._refresh(pin, now)

    def _release(self, idle: Sequence[_Held]) -> None:
        self._older = [pin for pin in self._older if pin not in idle]
        self._unwanted.update((pin.id, None) for pin in idle)

    async def _remove(self) -> None:
        """Remove what is not wanted, if there is any."""
        if self._unwanted:
            await self._driver.commit(DeleteCheckpoints(frozenset(self._unwanted)))
            self._unwanted = {}

    async def _refresh(self, pin: _Held, now_ms: int) -> None:
        expire_ms = now_ms + self._lifetime_ms
        try:
            await self._driver.commit(RefreshCheckpoint(pin.id, now_ms, expire_ms))
        except InvalidError as error:
            self._lose(pin, str(error))
        else:
            pin.expire_ms = expire_ms
            self.refreshed += 1

    def _look_for_lost(self, head: ManifestState) -> None:
        for pin in self._held():
            if head.checkpoint(pin.id) is None:
                self._lose(pin, "it is not in the manifest any more")

    def _lose(self, pin: _Held, why: str) -> None:
        """The checkpoint was removed by hand, or it expired while this process slept: the next `pin` makes another."""
        self.lost += 1
        scans = "; a scan or snapshot under it may fail" if pin.read_from else ""
        logger.warning(
            "%s: this reader's checkpoint %s was lost (%s); the reader makes another one%s",
            self._name,
            pin.id,
            why,
            scans,
        )
        self._unwanted[pin.id] = None
        if pin is self._current:
            self._current = None
        else:
            self._older.remove(pin)

    def _held(self) -> list[_Held]:
        return [*self._older, *([] if self._current is None else [self._current])]

    async def close(self) -> None:
        """Remove all of them. Raises `UnavailableError`; what stays then expires."""
        self._release(self._held())
        self._current = None
        await self._remove()


def _ssts(state: ManifestState) -> frozenset[bytes]:
    return frozenset(sst.object_id for sst in state.ssts())
