"""Range deletes of a manifest, and the SSTs that may still hold rows that they hide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slate_async.storage.manifest.edits.range_deletes import may_hide
from slate_async.storage.manifest.state import ManifestState, SstRef
from slate_async.types import NO_END, RangeDelete


@dataclass(frozen=True, slots=True)
class RangeDeleteInspection:
    """A range delete that compaction has not used up. ``end``: the first key behind it; ``None`` if it has no end.

    l0_ssts, run_ssts: how many SSTs of L0, and of sorted runs, may hold rows that it hides"""

    seq: int
    start: bytes
    end: bytes | None
    create_ms: int
    l0_ssts: int
    run_ssts: int


def inspect_range_deletes(state: ManifestState) -> list[RangeDeleteInspection]:
    """Those of ``state``, the oldest first. Those of rows that are in no SST yet are not among them."""
    return [
        RangeDeleteInspection(
            delete.seq,
            delete.start,
            None if delete.until == NO_END else delete.until,
            delete.create_ms,
            sum(may_hide(delete, sst) for sst in state.l0),
            sum(may_hide(delete, sst) for run in state.runs for sst in run.ssts),
        )
        for delete in state.range_deletes or ()
    ]


def count_over(deletes: Iterable[RangeDelete], ssts: Iterable[SstRef]) -> int:
    """How many of ``deletes`` may hide rows of ``ssts``."""
    held = tuple(ssts)
    return sum(any(may_hide(delete, sst) for sst in held) for delete in deletes)
