"""What stands in for a part of rule 30 that is switched off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from slate_async.manifest import ingests
from slate_async.manifest.edits import check_writer, pinned
from slate_async.manifest.ingests import AdmitIngests, find_ingest
from slate_async.manifest.state import ManifestState
from slate_async.write.intake import Intake


def under_the_last_number(self: AdmitIngests, state: ManifestState) -> ManifestState | None:
    """An ingest takes the number of the last row that was flushed."""
    check_writer(state, self.epoch)
    jobs = [job for one in self.ids if (job := find_ingest(state, one)) is not None and job.pending]
    if self.flush is not None:
        flushed = self.flush.apply(state)
        if flushed is None:
            return None
        state = flushed
    elif not jobs:
        return None
    if self.log is not None:
        state = self._with_log(state, self.log)
    for job in jobs:
        state = ingests._admitted(state, job, max(1, state.last_seq), self.now_ms)
    return state if self.pin is None else pinned(state, self.pin)


@contextlib.contextmanager
def never_paused(self: Intake) -> Iterator[None]:
    """Writes go on while an ingest is admitted, and are numbered and logged as if it were not."""
    yield


def number_left_alone(self: Intake, seq: int) -> None:
    """The numbers of an ingest's rows are given to others, too."""


def nothing_pending(state: ManifestState) -> frozenset[str]:
    """What is committed and not admitted is not reachable."""
    return frozenset()


def no_batch(state: ManifestState, app_id: str) -> int | None:
    """No batch of any stream was ever there."""
    return None
