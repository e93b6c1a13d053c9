"""Numbers that no row has: a writer that opens its database again after an outage goes on above all that it gave."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slate_async.storage.manifest.edits.protocol import check_writer
from slate_async.storage.manifest.state import ManifestState, SkippedSeqs

SEQ_GAPS = "seq_gaps"
"""The required feature of a database in which numbers were skipped: a program that does not know it would miss their
rows."""


@dataclass(frozen=True, slots=True)
class SkipSeqs:
    """No row will have a number from ``first`` to ``last``, which this process gave to rows that did not get in.

    Committed by the writer of ``epoch`` before it writes a row above them."""

    epoch: int
    first: int
    last: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff the epoch is still the writer's. Its mark is the number."""
        check_writer(state, self.epoch)
        if state.skipped_end >= self.last:
            return None
        before = [span for span in state.skipped or () if span.last > state.history_floor]
        first = self.first
        if before and before[-1].last + 1 == first:
            first = before.pop().first
        features = state.required_features
        return replace(
            state,
            skipped=(*before, SkippedSeqs(first, self.last)),
            required_features=features if SEQ_GAPS in features else (*features, SEQ_GAPS),
        )
