"""The compactor that lives in a writer's process, and takes turns with compactors elsewhere.

It claims the role when there is something to do and no compactor seems to do it: at once if the role is free or was
left by an earlier writer's process, which is dead; else after `PATIENCE_S` in which the other compactor changed
nothing. Epochs make either safe; this only spares two living compactors a fight. A requested compaction claims the role
at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from slate_async.engine.compaction.compactor import Compactor
from slate_async.engine.compaction.manual import Manual
from slate_async.engine.compaction.size_tiered import oldest_is_large_ingest
from slate_async.engine.write.compactor_role import embedded_token, is_free
from slate_async.engine.write.writer import Writer
from slate_async.errors import CorruptionError, FencedError, SlateError, UnavailableError
from slate_async.runtime.protocol import Clock, Ids
from slate_async.settings import Settings
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)
PATIENCE_S = 30.0
"""A key range takes a few seconds, and each one that is finished is a change."""
CLAIM_PAUSE_S = 1.0
"""Between tries to claim the role of a metastore that does not answer; each try has its own deadline."""


def again(cause: SlateError) -> SlateError:
    """``cause`` as a fresh error, for one more caller: an exception raised twice mixes up its tracebacks."""
    error = type(cause).__new__(type(cause), *cause.args)
    error.__dict__.update(vars(cause))
    error.__cause__ = cause
    return error


@dataclass(frozen=True, slots=True)
class BesideWriter:
    """A writer as the host of its compactor (see `CompactorHost`), and what that asks of it besides.

    driver: the writer's
    on_commit: called when the writer should look at the head
    """

    writer: Writer
    driver: ManifestDriver
    settings: Settings
    ids: Ids
    on_commit: Callable[[], None]

    @property
    def epoch(self) -> int:
        """The writer's."""
        return self.writer.epoch

    def due(self) -> bool:
        """Whether there is something to compact."""
        state = self.writer.state.manifest
        full = self.writer.state.l0_count >= self.settings.l0_compact_ssts
        return full or bool(state.compactions) or oldest_is_large_ingest(state, self.settings.sst_bytes)

    def new_token(self) -> str:
        """See `CompactorHost`."""
        return embedded_token(self.epoch, self.ids.token())

    async def head(self) -> ManifestState | None:
        """See `CompactorHost`. What the driver knows; the writer polls."""
        return self.driver.head

    def log_due(self) -> bool:
        """See `CompactorHost`."""
        return len(self.writer.state.log_ssts) >= self.settings.l0_compact_ssts

    def committed(self) -> None:
        """See `CompactorHost`."""
        self.on_commit()


class EmbeddedCompactor:
    """See the module docstring. What it does it notes in the writer's `CompactorRole`."""

    def __init__(
        self,
        compactor: Compactor,
        *,
        name: str,
        beside: BesideWriter,
        clock: Clock,
    ) -> None:
        self._compactor = compactor
        self._name = name
        self._beside = beside
        self._role = beside.writer.compactor_role
        self._clock = clock
        self._wake = asyncio.Event()

    def notify(self) -> None:
        """Something changed, or time has passed: look whether there is work."""
        self._wake.set()
        self._compactor.notify()

    async def compact(self, manual: Manual) -> int:
        """See `Compactor.compact`. Takes the role from a compactor elsewhere."""
        if self._role.failure is not None:
            raise again(self._role.failure)
        self._wake.set()
        return await self._compactor.compact(manual)

    def close(self, failure: Callable[[], SlateError]) -> None:
        """The writer has ended."""
        self._compactor.close(failure)

    async def run(self) -> None:
        """Compact when it is this process's turn, for ever. An error of stored bytes ends compaction, not the writer,
        which goes on until it must wait for compaction, and says why. Raises `FencedError` as soon as a state that was
        met on the way is another writer's: a zombie must not take the role from the living time and again."""
        while True:
            await self._turn()
            try:
                self._role.epoch = self._compactor.epoch
                if not self._compactor.epoch:
                    await self._compactor.claim()
                    self._role.epoch = self._compactor.epoch
                self._check_writer()
                await self._compactor.run(while_asked=not self._role.auto_compaction)
                await self._compactor.release()
            except FencedError as fenced:
                logger.info("%s: the embedded compactor stands by: %s", self._name, fenced)
                self._compactor.refuse(lambda cause=fenced: FencedError(str(cause)))  # type: ignore[misc]
            except UnavailableError as error:
                logger.warning("%s: the compactor role could not be claimed, trying again: %s", self._name, error)
                await self._clock.sleep(CLAIM_PAUSE_S)
            except SlateError as error:
                advice = "run `slate verify`" if isinstance(error, CorruptionError) else "mend what the error names"
                logger.exception(
                    "%s: compaction stopped; writes go on until L0 is full: %s, then open it again", self._name, advice
                )
                self._role.failure = error
                self._compactor.close(lambda cause=error: again(cause))  # type: ignore[misc]
                return
            finally:
                self._role.epoch = None

    def _check_writer(self) -> None:
        epoch = self._role.newest().writer_epoch
        if epoch != self._beside.epoch:
            raise FencedError(f"writer epoch {epoch} took over from epoch {self._beside.epoch}")

    async def _turn(self) -> None:
        """Wait until a caller asks, or there is work that no other compactor does."""
        attended = None
        since = self._clock.monotonic()
        self._check_writer()
        while not self._compactor.asked:
            state = self._role.newest()
            if self._role.auto_compaction and self._beside.due():
                if is_free(state, self._beside.epoch):
                    return
                seen = (state.compactor_token, state.compactions, [run.id for run in state.runs])
                if seen != attended:
                    attended, since = seen, self._clock.monotonic()
                elif self._clock.monotonic() - since >= PATIENCE_S:
                    return
            else:
                attended = None
            self._wake.clear()
            await self._wake.wait()
