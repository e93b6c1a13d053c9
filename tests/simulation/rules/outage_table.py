"""Switches of what a writer rests on that opens its database again after an outage."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from slate_async.engine.write.memtables import MemtableList
from slate_async.engine.write.reopen import Reopening
from slate_async.engine.write.sequencer import Sequencer
from slate_async.engine.write.writer import Writer
from slate_async.runtime.backoff import Backoff
from slate_async.storage.manifest.edits.writer import ClaimWriter
from tests.simulation.rules import instead
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.engine.outages import OUTAGES

OUTAGE, WITH_RIVAL, OVERTAKEN = OUTAGES


async def no_gap_noted(*_: object) -> None:
    """Change feeds are to find out by themselves."""


def nothing(*_: object) -> None:
    """Leave all as it is."""


async def without_end(_: Backoff, work: Awaitable[object]) -> object:
    """Each request has its own time, and what repeats it, too."""
    return await work


OUTAGE_SWITCHES: Sequence[Switch] = (
    Switch(
        "outage-limit",
        "outage",
        "a log write is given up when its requests are, whenever that is",
        (Patch(Backoff, "attempt", without_end),),
        within=40,
        stage=OUTAGE,
    ),
    Switch(
        "outage-token",
        "outage",
        "a writer opens its database again although another writer took over",
        (Patch(ClaimWriter, "is_own", instead.always), Patch(Reopening, "is_own", instead.always)),
        within=20,
        stage=WITH_RIVAL,
    ),
    Switch(
        "outage-token-looked-at",
        "outage",
        "a writer that has found its own token opens again although another one claims in between",
        (Patch(ClaimWriter, "is_own", instead.always),),
        within=20,
        stage=OVERTAKEN,
    ),
    Switch(
        "outage-numbers",
        "outage",
        "the new epoch goes on after the last row that is in",
        (Patch(Sequencer, "succeed", nothing), Patch(Reopening, "_skip", no_gap_noted)),
        within=20,
        stage=OUTAGE,
    ),
    Switch(
        "outage-gap",
        "outage",
        "numbers that no row has are not noted in the manifest",
        (Patch(Reopening, "_skip", no_gap_noted),),
        within=20,
        stage=OUTAGE,
    ),
    Switch(
        "outage-unsent",
        "outage",
        "what was never sent stays in memory",
        (Patch(MemtableList, "drop_unsent", nothing),),
        within=20,
        stage=OUTAGE,
    ),
    Switch(
        "outage-undone",
        "outage",
        "what the takeover did not find stays in older snapshots",
        (Patch(Writer, "undo_above", nothing),),
        within=50,
        stage=OUTAGE,
    ),
)
