"""`WriterPins`: which of the writer's own checkpoints keeps which views readable.

Invariant (rule 20): every SST that a view of this writer names is named by a manifest version that one of its
checkpoints keeps, from before the view is made until its last read ends. So a scan may take longer than anything else,
and whatever compactors and collectors do meanwhile, none of its SSTs goes. The same checkpoint's ``log_start`` keeps
the log objects that are SSTs themselves.

Ordering rule: commit the checkpoint -> adopt the state that commit made -> make views of it. Commits that change the
set of pins are made one at a time under `lock`, adoption included, because each removes what no view needs.

Rule 20: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

import anyio

from slate_async.engine.read.view import ReadView
from slate_async.errors import SlateError, UnavailableError
from slate_async.runtime.protocol import Runtime
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.checkpoints import DeleteCheckpoints
from slate_async.storage.manifest.edits.writer import PinWriter, UnpinWriter, WriterPin
from slate_async.storage.manifest.sst_names import SstNames
from slate_async.storage.manifest.state import Checkpoint, ManifestState

logger = logging.getLogger(__name__)
CLOSE_LIMIT_S = 10.0
"""Closing waits no longer for the pins to be removed; the next writer removes them."""
PIN_ATTEMPTS = 16
"""How often the writer pins anew when another commit changed the state while it was being pinned."""


class WriterPins:
    """See the module docstring. ``claimed``: the state of the claim, which made checkpoint ``pin`` on itself.

    before: of this process's last epoch, whose views are read still. Until `succeed` its pins stay as they are, and
    from then on those are kept here under which a read runs"""

    def __init__(
        self,
        claimed: ManifestState,
        pin: UUID,
        driver: ManifestDriver,
        runtime: Runtime,
        before: WriterPins | None = None,
    ) -> None:
        self.lock = asyncio.Lock()
        self.epoch = claimed.writer_epoch
        self._before = before
        earlier: frozenset[int] = frozenset() if before is None else before._epochs
        self._epochs: frozenset[int] = earlier | {self.epoch}
        self._current = pin
        self._ssts = SstNames(claimed)
        self._driver = driver
        self._runtime = runtime
        self._held: dict[UUID, list[ReadView]] = {}
        self._over = False

    # ---- views

    def retire(self, view: ReadView) -> None:
        """``view``, made of a state that the current pin keeps, gives way to another one."""
        if view.pinned:
            self._held.setdefault(self._current, []).append(view)

    def adopted(self, state: ManifestState) -> None:
        """From now on views are made of ``state``, which is pinned; the last one made before is retired."""
        if (pin := self._pin_of(state)) is None or pin == self._current:
            return
        self._current, self._ssts = pin, SstNames(state)
        there = [checkpoint.id for checkpoint in self._own(state)]
        for replaced in [held for held in self._held if held not in there]:
            self._held.setdefault(pin, []).extend(self._held.pop(replaced))  # the new pin stands in for it

    def kept(self) -> frozenset[UUID]:
        """Pins that views need, or may: a read that begins now reads under the current one."""
        reading = {pin: [view for view in views if view.pinned] for pin, views in self._held.items()}
        self._held = {pin: views for pin, views in reading.items() if views}
        before = frozenset[UUID]() if self._before is None else self._before.kept()
        return frozenset((self._current, *self._held)) | before

    def succeed(self, view: ReadView) -> None:
        """The last epoch is over: ``view`` was its newest one, and no new read begins in it."""
        assert self._before is not None
        before, self._before = self._before, None
        before.retire(view)
        for pin, views in before._held.items():
            self._held.setdefault(pin, []).extend(views)

    # ---- states

    def is_pinned(self, state: ManifestState) -> bool:
        """Whether a pin of this writer keeps everything ``state`` names."""
        return self._pin_of(state) is not None

    def _pin_of(self, state: ManifestState) -> UUID | None:
        own = self._own(state)
        exact = next((checkpoint.id for checkpoint in own if checkpoint.ref == state.ref), None)
        if exact is not None:
            return exact
        held = any(checkpoint.id == self._current for checkpoint in own)
        return self._current if held and SstNames(state).within(self._ssts) else None

    def _own(self, state: ManifestState) -> list[Checkpoint]:
        return [
            checkpoint
            for checkpoint in state.checkpoints
            if checkpoint.owner == "writer" and checkpoint.epoch in self._epochs
        ]

    async def pin(self, state: ManifestState) -> ManifestState:
        """``state``, or a later one, which a pin keeps. The caller holds `lock`.

        Raises `FencedError`, `UnavailableError`; the pin that was tried goes with the next one."""
        for _ in range(PIN_ATTEMPTS):
            if self.is_pinned(state):
                return state
            pin = WriterPin(self._runtime.ids.uuid(), self._runtime.clock.now_ms(), self.kept())
            state = await self._driver.commit(PinWriter(self.epoch, pin))
        raise UnavailableError(
            f"{self._driver.name}: pinning its SSTs failed {PIN_ATTEMPTS} times, because other commits changed the"
            " manifest"
        )

    def for_flush(self) -> WriterPin | None:
        """The pin of an edit that adds an SST, in place of the current one if nothing else changed meanwhile: then
        what it holds stays held. The caller holds `lock`."""
        if self._over:
            return None
        now_ms = self._runtime.clock.now_ms()
        return WriterPin(self._runtime.ids.uuid(), now_ms, self.kept(), self._current, self._ssts)

    # ---- release

    def idle(self, head: ManifestState) -> frozenset[UUID]:
        """Pins in ``head`` that no read needs. They hold SSTs, so they go although nothing else is to be committed."""
        return frozenset(checkpoint.id for checkpoint in self._own(head)) - self.kept()

    async def release(self, head: ManifestState) -> None:
        """Remove the idle ones. The caller holds `lock`."""
        if idle := self.idle(head):
            await self._driver.commit(DeleteCheckpoints(idle))

    async def close_at_the_end(self, log_end: int, name: str) -> None:
        """`close`, so that collectors need not wait for the next writer of the database ``name``. Not worth a failure,
        nor a long wait."""
        try:
            with anyio.move_on_after(CLOSE_LIMIT_S):
                await self.close(log_end)
        except SlateError as error:
            logger.info("%s: this writer's checkpoints stay until the next one opens: %s", name, error)

    async def close(self, log_end: int) -> None:
        """Remove every pin of this writer, which reads no more and has acknowledged the log up to ``log_end``."""
        async with self.lock:
            self._over = True
            head = self._driver.head
            if head is not None and (own := self._own(head)):
                ids = frozenset(checkpoint.id for checkpoint in own)
                await self._driver.commit(UnpinWriter(self.epoch, ids, log_end))
