"""What range deletes let a compaction drop: the rows that they hide, and SSTs as a whole.

An SST that is *swept* holds no row that a range delete up to its ``swept_seq`` hides. A range delete above
``keep_above`` hides rows from some reads only, so these rows stay.

Rule 35: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from msgspec import structs

from slate_async.engine.compaction.plan_builder import PlanBuilder
from slate_async.engine.read.covers import Covers
from slate_async.storage.manifest.edits.range_deletes import may_hide, taken_ssts
from slate_async.storage.manifest.state import ManifestState, SstRef
from slate_async.types import MAX_SEQ, RangeDelete

MOST_SWEPT = 16
"""SSTs rewritten at once only to drop rows that range deletes hide."""


def swept_by(state: ManifestState, keep_above: int) -> int | None:
    """Up to which number a compaction of ``state`` knows all range deletes and may use them; ``None``: there are none.

    Those up to ``last_seq`` are in the state, or hide nothing; later ones may still be in memory."""
    return min(keep_above, state.last_seq) if state.range_deletes else None


def deletes_within(
    state: ManifestState, start: bytes | None, end: bytes | None, keep_above: int
) -> tuple[RangeDelete, ...]:
    """The range deletes up to ``keep_above`` that hide keys of ``[start, end)``."""
    return tuple(
        delete
        for delete in state.range_deletes or ()
        if delete.seq <= keep_above and (start is None or start < delete.end) and (end is None or delete.start < end)
    )


def swept(ssts: Sequence[SstRef], seq: int | None) -> tuple[SstRef, ...]:
    """``ssts``, which hold no row that range deletes up to ``seq`` hide."""
    return tuple(ssts) if seq is None else tuple(structs.replace(sst, swept_seq=seq) for sst in ssts)


def hidden_whole(state: ManifestState, keep_above: int) -> tuple[tuple[bytes, int], ...]:
    """The SSTs that no compaction takes and of which range deletes up to ``keep_above`` hide every row, each with the
    number of the newest one."""
    usable = deletes_within(state, None, None, keep_above)
    if not usable:
        return ()
    covers, taken = Covers(usable), taken_ssts(state)
    return tuple(
        (sst.object_id, covers.newest_seq)
        for sst in state.ssts()
        if sst.object_id not in taken and covers.hide(sst.first_key, sst.last_key, sst.max_seq, MAX_SEQ)
    )


def plan_sweep(builder: PlanBuilder) -> None:
    """Rewrite in place SSTs of runs that hold rows which a range delete hides from every read, so that these give their
    space back, and the range delete may go."""
    usable = deletes_within(builder.state, None, None, builder.keep_above)
    if not usable:
        return
    for run in builder.state.runs:
        wanted = ((sst, any(may_hide(delete, sst) for delete in usable)) for sst in run.ssts)
        for due, group in groupby(wanted, lambda pair: pair[1]):
            ssts = [sst for sst, _ in group][:MOST_SWEPT]
            if due and builder.add(runs=[run], ssts=ssts, level=run.level, target=run, rewrite=True):
                return
