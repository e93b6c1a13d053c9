"""Opening a database again, in the process that has it open as its writer, once the store answers after an outage.

Ordering rule: look at the head, which must still name this process -> prove that the place is its own: the last log
object it acknowledged is there -> claim, which applies iff the head still names one of this process's own claims ->
take the log over as any takeover does. That never fences another writer: another writer's claim, before or after, ends
this one. See ``docs/decisions``.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace

from slate_async.engine.context import DatabaseContext
from slate_async.engine.write.open import Opened, take_over
from slate_async.engine.write.pins import WriterPins
from slate_async.errors import ConfigError, CorruptionError, NotFoundError, SlateError, UnavailableError, met_before
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest.codec import NewerReleaseError
from slate_async.storage.manifest.edits.skipped import SkipSeqs
from slate_async.storage.manifest.edits.writer import ClaimWriter, WriterPin, overtaken
from slate_async.storage.manifest.ownership import check_ownership
from slate_async.storage.manifest.state import ManifestState

logger = logging.getLogger(__name__)
WAITED_OUT = (UnavailableError, ConfigError, NotFoundError)
"""What may pass while the process lives. A store that comes back may refuse requests before it knows its users, or its
buckets; credentials are renewed, permissions mended. Waiting does no harm: nothing is written meanwhile, and another
writer may take over. Not what cannot pass: a manifest of a newer release, which only another writer can have written,
and damaged bytes."""
LONGEST_PAUSE_S = 60.0
"""Between two tries that are refused after the look: each may have made a claim."""
MOST_LOOKS = 16
"""Under way at a time. One begins at each poll, answered or not: a store that swallowed requests is noticed when it
takes them again, not when the last one is given up."""


@dataclass(slots=True)
class Reopening:
    """What one process knows of its own claims.

    tokens: of all that it ever sent, of which any may be in
    outage: why the store is not used, while it is not; last: why the last outage began
    """

    context: DatabaseContext
    supervisor: Supervisor
    tokens: dict[str, None] = field(default_factory=dict)
    outage: SlateError | None = None
    last: SlateError | None = None

    def is_own(self, head: ManifestState) -> bool:
        """Whether the writer that ``head`` names is this process."""
        return head.writer_token in self.tokens

    @property
    def passing(self) -> tuple[type[SlateError], ...]:
        """The errors of the store, or the metadata, that do not end the writer now."""
        return (UnavailableError,) if self.outage is None else WAITED_OUT

    def suspend(self, opened: Opened, cause: UnavailableError) -> None:
        """An outage begins: the writer refuses writes from now on."""
        logger.warning("%s: writes are refused until the store answers: %s", self.context.name, cause)
        self.outage = self.last = cause
        opened.writer.suspend(cause)

    def resume(self, before: Opened, opened: Opened) -> None:
        """The outage is over: the writer of ``opened`` goes on where that of ``before`` ended."""
        opened.writer.succeed(before.writer)
        self.outage = None
        _drop_frames(self.last)
        logger.warning("%s: the store is back; writes go on as epoch %d", self.context.name, opened.writer.epoch)

    async def run(self, opened: Opened) -> Opened:
        """Stop the writer of ``opened``, which is suspended, and open the database as soon as that is possible.

        Raises `FencedError` when another writer took over, and what else an opening raises but `WAITED_OUT`."""
        await opened.writer.stop()
        refused = 0
        while True:
            await self._until_back(opened)
            try:
                return await self._open(opened)
            except WAITED_OUT as error:
                self._still_out(error)
                refused = 0 if isinstance(error, UnavailableError) else refused + 1
            if refused:
                await self.context.runtime.clock.sleep(min(LONGEST_PAUSE_S, 2.0 ** min(refused, 16)))

    def _still_out(self, cause: SlateError) -> None:
        if isinstance(cause, NewerReleaseError):
            raise cause
        logger.info("%s: the store is still out of reach: %s", self.context.name, cause)
        self.outage = cause

    async def _until_back(self, opened: Opened) -> None:
        """Return once one of the looks at store and metadata, a poll interval apart, finds all in its place."""
        runtime, interval = self.context.runtime, opened.settings.manifest_poll_interval_ms / 1000
        looks: dict[asyncio.Task[None], None] = {}
        due = runtime.clock.monotonic()
        try:
            while True:
                due += runtime.rng.uniform(interval / 2, interval)
                while (left := due - runtime.clock.monotonic()) > 0:
                    if not looks:
                        await runtime.clock.sleep(left)
                        continue
                    done, _ = await asyncio.wait(looks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                    for look in done:
                        del looks[look]
                        try:
                            return look.result()
                        except WAITED_OUT as error:
                            self._still_out(error)
                if len(looks) < MOST_LOOKS:
                    look = self.supervisor.spawn("look at the store", self._look(opened), critical=False)
                    looks[look] = None
        finally:
            for look in looks:
                look.cancel()

    async def _look(self, opened: Opened) -> None:
        """Look once, for no longer than a request may take. Nothing is written."""
        patience = opened.settings.request_timeout_ms / 1000
        try:
            async with asyncio.timeout(patience):
                head = await opened.driver.load()
                if head is None:
                    raise UnavailableError(
                        "the store answers, but the manifest is missing: the store is empty, or another one"
                    )
                if not self.is_own(head):
                    raise overtaken(head)
                await self._prove_place(opened, head)
        except TimeoutError as error:
            met = met_before(error) or f"; it began with: {self.last}"
            raise UnavailableError(f"no answer within {patience:g} s{met}") from error

    async def _prove_place(self, opened: Opened, head: ManifestState) -> None:
        """What comes back may be another place: a disk that is not mounted is an empty folder. The log is fenced only
        where this process's own last object is; its SSTs are looked at, too."""
        writer, store = opened.writer, self.context.store
        try:
            await self.context.ground.check_again(head, opened.driver.load)
        except ConfigError as error:
            raise UnavailableError(
                f"the store answers, but it is not the one that the database was opened on: {error}"
            ) from error
        key = writer.last_log_key
        if key is not None:
            try:
                await store.head(key)
            except ObjectNotFoundError as error:
                newest = await opened.driver.load()
                if newest is None or newest.log_start <= writer.state.acknowledged_end:
                    raise UnavailableError(
                        f"the store answers, but {key}, which holds acknowledged rows, is missing: is it another store?"
                    ) from error
        try:
            await check_ownership(store, head, opened.driver.load)
        except CorruptionError as error:
            raise UnavailableError(
                f"the store answers, but it is not the one that the database was opened on: {error}"
            ) from error

    async def _open(self, opened: Opened) -> Opened:
        runtime, settings, driver, before = self.context.runtime, opened.settings, opened.driver, opened.writer.pins
        pin = WriterPin(runtime.ids.uuid(), runtime.clock.now_ms())
        token = runtime.ids.token()
        claim = ClaimWriter(
            token,
            settings.flush_parallelism,
            pin,
            own=frozenset(self.tokens),
            keep=before.kept(),
            heartbeat_interval_ms=settings.heartbeat_interval_ms or None,
            log_end=opened.writer.state.published_end,
        )
        self.tokens[token] = None  # from here on the claim may be in, whatever the answer
        claimed = await driver.commit(claim)
        logger.info("%s: the store is back; claimed writer epoch %d", self.context.name, claimed.writer_epoch)
        if opened.heartbeat is not None:
            opened.heartbeat.epoch = claimed.writer_epoch
        pins = WriterPins(claimed, pin.id, driver, runtime, before)
        again = await take_over(
            self.context, settings, claimed, pins, driver, opened.register, self.supervisor, opened.writer.yield_budget
        )
        try:
            await self._skip(again, opened.writer.sequencer.last_seq)
        except BaseException:
            await run_to_completion(again.writer.stop())
            raise
        driver.contact.found()
        return replace(again, heartbeat=opened.heartbeat)

    async def _skip(self, again: Opened, given: int) -> None:
        """Before the first row above them is written, note the numbers that this process has given, up to ``given``,
        and that no row has: change feeds take every other gap for lost rows."""
        writer = again.writer
        if given > writer.sequencer.last_seq:
            state = await again.driver.commit(SkipSeqs(writer.epoch, writer.sequencer.last_seq + 1, given))
            async with writer.pins.lock:
                writer.state.adopt(await writer.pins.pin(state))


def _drop_frames(error: BaseException | None) -> None:
    """An error that is kept as text is not to keep, by the frames of its traceback, the writer that failed and its
    memtables."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
