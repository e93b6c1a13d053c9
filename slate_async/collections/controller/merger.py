"""Merges: the spine says which, and when; an `Executor` does them; their results are committed if they still fit.

At most `parallel_merges` run at once, never two that share a batch. A merge that is lost, because its inputs were
merged by another controller, because nothing answered, or because this process ended, is planned again.

A merge of more batches than fit in memory is done in several: of neighbours, the fewest rows first.

Rules C16, C20 to C23 of collections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.controller.executor import Executor, MergeTask
from slate_async.collections.controller.flights import Flights
from slate_async.collections.controller.memory import fitting
from slate_async.collections.core import spine
from slate_async.collections.core.area import Area, MergedBatch, find_neighbours
from slate_async.collections.core.bounds import spanning
from slate_async.collections.core.edits import ReplaceMerged, check_epoch
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import MergedName
from slate_async.collections.core.spine import Exertion, Merge
from slate_async.errors import ConflictError, CorruptionError
from slate_async.objectstore.protocol import ObjectNotFoundError

EXERT_ROWS = 1 << 20
"""Rows that an idle controller grants at a time. Small collections come to rest at once."""


@dataclass(slots=True)
class MergeCounts:
    """What was merged. ``lost``: merges whose inputs were merged by another meanwhile"""

    merges: int = 0
    lost: int = 0
    rows_in: int = 0
    rows_out: int = 0


class Mergers:
    """The merges of one controller."""

    def __init__(self, context: ControllerContext, epoch: int, flights: Flights, executor: Executor) -> None:
        self._context = context
        self._epoch = epoch
        self._flights = flights
        self._executor = executor
        self._busy: set[str] = set()
        self._exertion: Exertion | None = None
        self.counts = MergeCounts()

    def due(self, head: Area) -> Sequence[MergedBatch]:
        """The batches that are to be merged first, now; none if nothing is due."""
        waiting = spine.due(head, self._busy)
        return self._fitting(waiting[0]) if waiting else ()

    def exert(self, head: Area, target: Frontier, *, rows: int = EXERT_ROWS) -> Sequence[MergedBatch]:
        """Grant fuel to what an idle collection can still do; the batches to be merged once that is enough."""
        if self._busy or spine.due(head, ()):
            return ()
        self._exertion, merge = spine.exert(head, target, self._exertion, rows)
        return () if merge is None else self._fitting(merge)

    def is_at_rest(self, head: Area, target: Frontier) -> bool:
        """Whether nothing is left to do while nothing comes in."""
        return not self._busy and spine.idle_merge(head, target) is None

    async def merge(self, inputs: Sequence[MergedBatch], target: Frontier) -> Area | None:
        """Merge ``inputs``, neighbours of the head, compacted to ``target``; ``None`` if another one did meanwhile.

        Raises `FencedError`, `ClosedError`, `UnavailableError`, `CorruptionError`, and `InternalError` for a result
        that does not fit its inputs, which is not committed."""
        context, names = self._context, tuple(batch.name for batch in inputs)
        if not self._busy.isdisjoint(names):
            return None
        bounds = spanning([batch.bounds for batch in inputs]).compacted(target)
        output = MergedName(bounds.lower, bounds.upper, self._epoch, context.runtime.ids.token())
        task = MergeTask(context.schema, tuple(inputs), output, bounds, target, context.part_bytes)
        self._busy.update(names)
        try:
            with self._flights.of(str(output)):
                merged = await self._executor.merge(task)
                edit = ReplaceMerged(self._epoch, names, merged)
                area = await self._flights.commit(context.versions, edit, str(output))
        except ObjectNotFoundError as error:
            await self._explain(names, error)
            self.counts.lost += 1
            return None
        except ConflictError:
            self.counts.lost += 1
            return None
        finally:
            self._busy.difference_update(names)
        self.counts.merges += 1
        self.counts.rows_in += sum(batch.rows for batch in inputs)
        self.counts.rows_out += merged.rows
        return area

    def _fitting(self, merge: Merge) -> Sequence[MergedBatch]:
        return fitting(self._context.merge_memory_bytes, merge.batches)

    async def _explain(self, names: tuple[str, ...], error: ObjectNotFoundError) -> None:
        """An input is missing: another controller merged and collected it, or the store has lost it."""
        context = self._context
        head = await context.answered("a read of the head", context.versions.load)
        check_epoch(head, self._epoch)
        if find_neighbours(head.batches, names) is not None:
            raise CorruptionError("a merged batch is missing, and the head names it", object_name=error.key) from error
