"""Whether what users saw may have happened. Each checker raises `Violation` with the first thing that may not.

=====================  ==================================================================================
checker                what must hold
=====================  ==================================================================================
check_survival         every acknowledged write is in the final state, under its acknowledged sequence number
check_refused          no write that was refused as certainly not applied is ever seen
check_holes            a writer's survivors are the first of its writes, none missing between
check_order            every view is a prefix of the final order; one sequence number a write, one write a number
check_values           contended keys hold what the writes in the view say: nothing lost, nothing resurrected
check_epochs           one live epoch: epochs are unique, acknowledgements never go back to an older one, and a
                       takeover inherits whatever any earlier epoch acknowledged
check_linearizable     confirmed reads and acknowledged writes of each key have one order
check_snapshots        a snapshot never changes
check_moments          a view as of a sequence number shows everything up to it, and nothing else
check_no_leaks         a closed process runs no task
=====================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.history import History, Kind, View, Write
from tests.simulation.linearizability import NEVER, RegisterOp, linearizable
from tests.simulation.node import Node


class Violation(AssertionError):
    """A guarantee is broken. ``kind`` is one word for statistics."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def check_survival(history: History) -> None:
    """Acknowledged writes survive."""
    final = dict(history.final.writes)
    for write in history.writes.values():
        if not write.is_acked:
            continue
        if write.id not in final:
            raise Violation("lost", f"{write} is not in the final state")
        if write.seq is not None and final[write.id] != write.seq:
            raise Violation("renumbered", f"{write} is in the final state as seq {final[write.id]}")


def check_refused(history: History) -> None:
    """What was refused as not applied never shows."""
    for view in history.views:
        for write_id, _ in view.writes:
            write = history.writes.get(write_id)
            if write is None:
                raise Violation("invented", f"{view.observer} saw write {write_id}, which nobody made")
            if write.refused and view.kind is not Kind.MEMORY:  # it may have been in memory before it was refused
                raise Violation("refused", f"{view.observer} saw {write}")


def check_holes(history: History) -> None:
    """Per writer, no write is lost while a later one survives."""
    final = dict(history.final.writes)
    by_writer: dict[tuple[str, int], list[Write]] = {}
    for write in history.writes.values():
        if not write.refused:
            by_writer.setdefault((write.writer, write.epoch), []).append(write)
    for writes in by_writer.values():
        numbered = sorted((write for write in writes if write.seq is not None), key=lambda write: write.seq or 0)
        missing: Write | None = None
        for write in numbered:
            if write.id not in final:
                missing = missing or write
            elif missing is not None:
                raise Violation("hole", f"{missing} is lost and the later {write} is not")


def check_order(history: History) -> None:
    """Durable views are prefixes of the final order; memory views are one followed by the observer's own writes."""
    final = history.final.ordered()
    _check_unique(history.final)
    for view in history.views:
        _check_unique(view)
        _check_promised_seqs(history, view)
        seen = view.ordered()
        common = 0
        while common < min(len(seen), len(final)) and seen[common] == final[common]:
            common += 1
        rest = seen[common:]
        if not rest:
            continue
        if view.kind is not Kind.MEMORY:
            expected = final[common] if common < len(final) else "nothing"
            raise Violation(
                "order", f"{view.observer} ({view.kind.value}) saw (seq, write) {rest[0]} where the final is {expected}"
            )
        _check_own_tail(history, view, rest)


def _check_unique(view: View) -> None:
    seqs: dict[int, int] = {}
    ids: dict[int, int] = {}
    for write, seq in view.writes:
        if seqs.setdefault(seq, write) != write:
            raise Violation("one-seq", f"{view.observer} saw writes {seqs[seq]} and {write} under one seq {seq}")
        if ids.setdefault(write, seq) != seq:
            raise Violation("two-seqs", f"{view.observer} saw write {write} under seqs {ids[write]} and {seq}")


def _check_promised_seqs(history: History, view: View) -> None:
    for write_id, seq in view.writes:
        promised = history.writes[write_id].seq
        if promised not in (None, seq):
            raise Violation("renumbered", f"{view.observer} saw {history.writes[write_id]} as seq {seq}")


def _check_own_tail(history: History, view: View, rest: Sequence[tuple[int, int]]) -> None:
    final = dict(history.final.writes)
    for seq, write_id in rest:
        write = history.writes[write_id]
        if write_id in final:
            raise Violation("order", f"{view.observer} (memory) saw {write} as seq {seq} after writes that were undone")
        if write.writer != view.observer:
            raise Violation("order", f"{view.observer} (memory) saw {write}, which is another's and did not survive")


def check_values(history: History) -> None:
    """The contended keys of a view hold what its writes left there."""
    for view in history.views:
        expected: dict[bytes, bytes] = {}
        for _, write_id in view.ordered():
            write = history.writes[write_id]
            changes = {**write.changes, **write.expiring} if view.kind is Kind.FINAL else write.changes
            for key, value in changes.items():
                if value is None:
                    expected.pop(key, None)
                else:
                    expected[key] = value
        for key in sorted(expected.keys() | view.values.keys()):
            if expected.get(key) != view.values.get(key):
                raise Violation(
                    "value",
                    f"{view.observer} ({view.kind.value}): {key!r} holds {view.values.get(key)!r}, "
                    f"its writes say {expected.get(key)!r}",
                )


def check_epochs(history: History) -> None:
    """One live epoch."""
    openings: dict[int, View] = {}
    for view in history.views:
        if view.kind is not Kind.OPENED or view.epoch is None:
            continue
        if view.epoch in openings:
            raise Violation(
                "epoch", f"{openings[view.epoch].observer} and {view.observer} both opened epoch {view.epoch}"
            )
        openings[view.epoch] = view
    acked = [write for write in history.writes.values() if write.is_acked]
    for epoch, view in openings.items():
        inherited = dict(view.writes)
        for write in acked:
            earlier = write.acked < view.began if write.ingested else write.epoch < epoch
            if earlier and write.id not in inherited:
                raise Violation("inheritance", f"{view.observer} opened epoch {epoch} without {write}")
    _check_epochs_in_real_time([write for write in acked if not write.ingested], openings)


def _check_epochs_in_real_time(acked: Sequence[Write], openings: dict[int, View]) -> None:
    """A write begun after a later epoch was open cannot be acknowledged by an earlier one."""
    moments = [(view.at, epoch, view.observer) for epoch, view in openings.items()]
    moments += [(write.acked, write.epoch, str(write)) for write in acked]
    moments.sort()
    highest: list[tuple[float, int, str]] = []
    for moment in moments:
        if not highest or moment[1] > highest[-1][1]:
            highest.append(moment)
    for write in acked:
        for at, epoch, what in highest:
            if at < write.invoked and epoch > write.epoch:
                raise Violation("epoch", f"{write} began at {write.invoked:.6f}, after epoch {epoch} lived ({what})")


def check_linearizable(history: History) -> None:
    """Confirmed reads against acknowledged writes, key by key. The final state counts as a read of every key."""
    keys = {key: None for write in history.writes.values() for key in write.changes}
    keys.update({read.key: None for read in history.reads})
    end = history.final.at
    for key in keys:
        ops = [
            RegisterOp("write", write.changes[key], write.invoked, write.acked if write.is_acked else NEVER)
            for write in history.writes.values()
            if key in write.changes and not write.refused
        ]
        ops += [RegisterOp("read", read.value, read.start, read.end) for read in history.reads if read.key == key]
        ops.append(RegisterOp("read", history.final.values.get(key), end, end))
        if not linearizable(ops):
            raise Violation("linearizability", f"no order of {len(ops)} operations explains the reads of {key!r}")


def check_snapshots(history: History) -> None:
    """The same query on the same snapshot gave the same."""
    if history.unstable:
        raise Violation("snapshot", history.unstable[0])


def check_moments(history: History) -> None:
    """A view as of a sequence number shows all of it."""
    final = history.final.ordered()
    for seq, view in history.moments:
        expected = [entry for entry in final if entry[0] <= seq]
        if view.ordered() != expected:
            raise Violation("moment", f"{view.observer} saw {view.ordered()} at seq {seq}, where {expected} was")


def check_history(history: History) -> None:
    """All of the above."""
    check_survival(history)
    check_refused(history)
    check_holes(history)
    check_order(history)
    check_values(history)
    check_epochs(history)
    check_linearizable(history)
    check_snapshots(history)
    check_moments(history)


def check_no_leaks(node: Node) -> None:
    """A process in which everything was closed runs nothing."""
    waiting = [task.get_name() for task in node.pending()]
    if waiting:
        raise Violation("leak", f"{node.name} still runs {', '.join(waiting)}")
