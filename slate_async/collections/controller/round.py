"""One round: look at the holds, absorb what is pending, publish what the holds allow, collect garbage.

Ordering rules: the head is read before the holds are listed, so compaction goes to what that head has published and
what the holds allow that were listed after it (C16), and deletion likewise (C17). What they allow beyond is published,
in the same version as what was absorbed, for the next round.

What the holds allow may be published any time later: the next listing shows who came since, and until then neither
compaction nor deletion goes by it. So while much comes in, holds are not looked at for each batch of it.

While a hold is damaged, bound and floor stay and nothing is collected; what is pending is absorbed all the same.

A floor is published only if it frees anything: else each move of a reader would make a version, which it moves to.

Rules C16, C17, C20 and C21 of collections.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass

from slate_async.collections.controller.absorb import Absorbed, Absorption, delete_scratch
from slate_async.collections.controller.collect import collect
from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.controller.flights import Flights
from slate_async.collections.controller.pending import PendingBatch, list_pending
from slate_async.collections.controller.report import Collected, RoundReport, held_back
from slate_async.collections.controller.sweep import Looked, Sweep
from slate_async.collections.core import spine
from slate_async.collections.core.area import Area
from slate_async.collections.core.edits import Absorb, Finalize, Publish, check_epoch
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.sweep import compaction_target, may_end
from slate_async.errors import ConflictError, CorruptionError
from slate_async.objectstore.protocol import ObjectNotFoundError

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """What a controller has done since it was opened."""

    rounds: int = 0
    appends: int = 0
    rows: int = 0
    batches: int = 0
    revoked: int = 0
    deleted_objects: int = 0
    deleted_bytes: int = 0


class Rounds:
    """The rounds of one controller, one at a time.

    target: what merges may compact to (C16); ``None`` before the first round. It stays right for ever"""

    def __init__(self, context: ControllerContext, epoch: int, flights: Flights) -> None:
        self._context = context
        self._epoch = epoch
        self._flights = flights
        self._sweep = Sweep(context)
        self._still: Area | None = None  # the first version seen with what the head holds
        self._looked: Looked | None = None
        self._versions: dict[int, Area] = {}
        self._may_end = False  # as target, by the same look
        self.target: Frontier | None = None
        self.counts = Counts()

    @property
    def standing(self) -> int:
        """How many holds stood at the last look."""
        return 0 if self._looked is None else len(self._looked.standing)

    async def round(
        self, *, batches: list[PendingBatch] | None = None, collecting: bool = True, dry_run: bool = False
    ) -> RoundReport:
        """A whole round.

        batches: what is pending, if it was listed just now
        dry_run: nothing is absorbed, published or deleted

        Raises `FencedError`, `ClosedError` once the collection is deleted, `UnavailableError`, `CorruptionError`."""
        head, looked = await self._look()
        room = spine.has_room(head)
        absorbed, published = None, head
        if not dry_run:
            absorbed, published = await self._absorb_and_publish(head, looked, room, batches)
        collected = None
        if collecting and not looked.damaged:
            held = looked.versions
            collected = await collect(
                self._context, self._epoch, head, held, self._flights, self._versions, dry_run=dry_run
            )
        self._count(absorbed, looked, collected, dry_run)
        return self._report(head, published, looked, absorbed, room, collected, dry_run)

    async def absorb(self, batches: list[PendingBatch]) -> bool:
        """Take in ``batches``, which were listed just now, and publish what the holds allowed at the last look; whether
        anything was. As a round whose commit was long on its way. Raises as `round`."""
        head, looked = self._context.versions.head, self._looked
        if head is None or looked is None or not spine.has_room(head):
            return False
        absorbed, _ = await self._absorb_and_publish(head, looked, True, batches)
        self._count(absorbed, Looked(), None, dry_run=False)
        return absorbed is not None

    async def look(self) -> bool:
        """Whether the holds differ from those of the last look."""
        return (await self._look())[1].is_new

    async def _look(self) -> tuple[Area, Looked]:
        """The head, and then the holds: C16, C17."""
        context = self._context
        head = await context.answered("a read of the head", context.versions.load)
        check_epoch(head, self._epoch)
        before = {} if self._looked is None else self._looked.damaged
        looked = self._looked = await self._sweep.look(head)
        for reader, damage in looked.damaged.items() - before.items():
            logger.error("%s: the hold of %s cannot be read: %s", context.name, reader, damage)
        self.target = compaction_target(head, looked.allowed.meet).join(head.since)
        self._may_end = may_end(head, looked.allowed.meet)
        return head, looked

    async def pending(self, covered: Frontier) -> list[PendingBatch]:
        """What was appended and may extend ``covered``."""
        return await self._context.answered(
            "a listing of pending batches", lambda: list_pending(self._context, covered)
        )

    async def _absorb_and_publish(
        self, head: Area, looked: Looked, room: bool, batches: list[PendingBatch] | None
    ) -> tuple[Absorbed | None, Area]:
        context, absorbed = self._context, None
        with ExitStack() as flying:
            if room and not head.upper.is_done:
                absorption = Absorption(context, self._flights, self._epoch, head, flying)
                batches = await self.pending(head.upper) if batches is None else batches
                try:
                    absorbed = await absorption.absorb(batches)
                except ObjectNotFoundError as error:
                    await self._explain(head, error, batches)
            absorb = None if absorbed is None else Absorb(self._epoch, absorbed.batch, absorbed.last)
            allowed = looked.allowed
            publish = Publish(self._epoch, allowed.meet, self._floor(head, allowed.oldest, absorb), absorb)
            name = None if absorbed is None else absorbed.batch.name
            try:
                published = await self._flights.commit(context.versions, publish, name)
            except ConflictError:  # of an absorb: somebody of this epoch took it in
                absorbed, published = None, await context.answered("a read of the head", context.versions.load)
        if absorbed is not None:
            await delete_scratch(context, absorbed)
        if self._may_end and Finalize(self._epoch).apply(published) is not None:
            published = await self._flights.commit(context.versions, Finalize(self._epoch))
        self._note_still(published)
        return absorbed, published

    def _floor(self, head: Area, oldest: int | None, absorb: Absorb | None) -> int | None:
        """What to publish as floor; the one there is, if another would free nothing."""
        if oldest is None or absorb is not None or self._still is None:
            return oldest
        return head.floor if head.floor >= self._still.version else oldest

    def _note_still(self, head: Area) -> None:
        still = self._still
        if still is None or (still.batches, still.upper, still.since) != (head.batches, head.upper, head.since):
            self._still = head

    async def _explain(self, head: Area, error: ObjectNotFoundError, batches: list[PendingBatch]) -> None:
        """A pending batch was listed, and is missing: another controller collected it, or a part of it is lost."""
        context = self._context
        now = await context.answered("a read of the head", context.versions.load)
        check_epoch(now, self._epoch)
        if now.upper != head.upper:
            return
        for batch in batches:
            is_part = error.key.startswith(f"{context.pending.where(batch.name)}.")
            if is_part and await context.pending.describe(batch.name) is not None:
                raise CorruptionError("a part of a pending batch is missing", object_name=error.key) from error
        logger.warning("%s: %s was listed and is missing; it is looked at again later", context.name, error.key)

    def _count(self, absorbed: Absorbed | None, looked: Looked, collected: Collected | None, dry_run: bool) -> None:
        counts = self.counts
        counts.rounds += 1
        counts.revoked += len(looked.revoked)
        if absorbed is not None:
            counts.appends += absorbed.appends
            counts.rows += absorbed.rows
            counts.batches += 1
        if collected is not None and not dry_run:
            counts.deleted_objects += collected.objects
            counts.deleted_bytes += collected.nbytes

    def _report(
        self,
        head: Area,
        published: Area,
        looked: Looked,
        absorbed: Absorbed | None,
        room: bool,
        collected: Collected | None,
        dry_run: bool,
    ) -> RoundReport:
        floor = min((head.floor, *looked.versions))
        kept = 0 if collected is None else collected.kept_pending
        deleted = 0 if collected is None or dry_run else collected.objects
        return RoundReport(
            epoch=self._epoch,
            version=published.version,
            upper=published.upper,
            since=published.since,
            appends=0 if absorbed is None else absorbed.appends,
            rows=0 if absorbed is None else absorbed.rows,
            waits_for_merges=not room,
            revoked=looked.revoked,
            collected=collected,
            held_back=held_back(published, looked.standing, floor, pending=kept, in_flight=len(self._flights.names)),
            deleted=False,
            changed=published.version > head.version or deleted > 0 or bool(looked.revoked),
        )
