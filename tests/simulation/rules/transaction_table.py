"""The parts of rule 32, each with the way to break it: what a transaction is judged by, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from slate_async.database.transaction import Transaction
from slate_async.engine.transactions.tracked_reads import TrackedReads
from slate_async.engine.write.commit_group import CommitGroup, NoRowsHandle, WriteHandle, handle_of
from slate_async.engine.write.open_transactions import OpenTransactions
from slate_async.engine.write.sequencer import Sequencer
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.transactions.scenarios import TRANSACTIONS
from tests.simulation.scenarios.transactions.scripts import READ_BEFORE_A_LOSS
from tests.simulation.scenarios.transactions.session import TransactionSession

_, INGESTS, CALM = TRANSACTIONS
_apply = Transaction._judged_and_applied
_admit = Sequencer._admit


def nothing(*_: object) -> None:
    """Do not."""


async def judged_too_early(self: Transaction) -> Any:
    """What it depends on is judged, and applied a little later."""
    if self._not_begun:
        self._begin()
    transactions, tracked = self._writer.transactions, self._tracked
    for scan in self._scans or ():
        scan.settle()
    if self._serializable and self._writes:
        transactions.check(tracked, tracked.points.keys(), tracked.spans, tracked.seq)
    await asyncio.sleep(0.001)
    tracked.points, tracked.spans = {}, None
    return await _apply(self)


async def judged_before_waiting(self: Sequencer, nbytes: int, check: Callable[[], None] | None = None) -> None:
    """Nothing is judged after a wait for room."""
    await _admit(self, nbytes)


def answered_at_once(self: Transaction) -> WriteHandle:
    """Nobody waits until what was read is durable."""
    group = CommitGroup()
    group.resolve()
    return handle_of(self.seq, 0, group, NoRowsHandle)


def _switch(name: str, broken: str, *patches: Patch, within: int, stage: Any = CALM) -> Switch:
    return Switch(f"32-{name}", "32", broken, patches, within=within, stage=stage)


TRANSACTION_SWITCHES: Sequence[Switch] = (
    _switch(
        "points", "a commit is not judged by the keys that were read", Patch(TrackedReads, "add", nothing), within=20
    ),
    _switch(
        "ranges",
        "a commit is not judged by the ranges that were scanned",
        Patch(TrackedReads, "add_range", nothing),
        within=20,
    ),
    _switch(
        "snapshot",
        "a commit is judged by what it writes alone",
        Patch(TransactionSession, "isolation", "snapshot"),
        within=20,
    ),
    _switch(
        "step",
        "a commit is applied in a later step than it is judged in",
        Patch(Transaction, "_judged_and_applied", judged_too_early),
        Patch(Transaction, "_apply_now", nothing),
        within=20,
    ),
    _switch(
        "room",
        "a commit that waits for room is judged before that alone",
        Patch(Sequencer, "_admit", judged_before_waiting),
        within=200,
    ),
    _switch(
        "flushed",
        "rows that leave memory are not remembered",
        Patch(OpenTransactions, "follow_cut", nothing),
        within=200,
    ),
    _switch(
        "ingested",
        "a commit is not judged by what ingests wrote",
        Patch(OpenTransactions, "adopted", nothing),
        within=150,
        stage=INGESTS,
    ),
    _switch(
        "durable",
        "a transaction that only reads does not wait until that is durable",
        Patch(Transaction, "_read_only", answered_at_once),
        within=60,
        stage=READ_BEFORE_A_LOSS,
    ),
)
