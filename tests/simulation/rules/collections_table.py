"""The rules of collections, each with the way to break it in the decisions; `ROLE_SWITCHES` break them in the roles."""

from __future__ import annotations

from collections.abc import Sequence

from slate_async.collections.core import chain, edits, garbage, holding, reading, sweep, times
from slate_async.collections.core.chain import Walk
from slate_async.collections.core.edits import Absorb
from tests.simulation.rules import collections_instead as instead
from tests.simulation.rules.lake_table import ROLE_SWITCHES
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.collections import controllers, holds, pending, readers, stage
from tests.simulation.scenarios.collections.scenarios import histories
from tests.simulation.scenarios.collections.stage import Appends, Mood

UNASSERTED = Patch(stage, "check_successor", instead.unchecked)
UNCHECKED = (
    UNASSERTED,
    Patch(controllers, "check_successor", instead.unchecked),
    Patch(edits, "check_result", instead.unchecked),
)
"""Assertions that notice what a wrong edit makes before a reader does."""


def _switch(
    name: str,
    rule: str,
    broken: str,
    *patches: Patch,
    within: int,
    mood: Mood | None = None,
    appends: Appends = "definite",
    behind: tuple[Patch, ...] = (),
) -> Switch:
    return Switch(
        f"collections-{name}", rule, broken, patches, within=within, stage=histories(appends, mood), behind=behind
    )


DECISION_SWITCHES: Sequence[Switch] = (
    _switch(
        "advance",
        "C1",
        "the elements of a since are joined, not met",
        Patch(times, "advance", instead.joined),
        within=40,
    ),
    _switch(
        "no-cut",
        "C2",
        "a listener moves to any version, and cuts it",
        Patch(reading, "may_adopt", instead.always),
        within=40,
        mood="listen",
    ),
    _switch(
        "strict",
        "C2",
        "a listener is restarted where times were compacted to",
        Patch(reading, "is_cut_at", instead.cut_where_compacted),
        Patch(reading, "to_restart_from", instead.all_of_it),
        within=120,
        mood="listen",
    ),
    _switch(
        "since-check",
        "C3",
        "a reader trusts its own since, not that of the version",
        Patch(reading, "may_read", instead.always),
        Patch(reading, "may_restart", instead.always),
        within=300,
        mood="lease",
    ),
    _switch(
        "contiguous",
        "C4",
        "a batch is taken across a gap",
        Patch(pending.coverage, "extend", instead.extend_in_any_order),
        within=20,
    ),
    _switch(
        "trim",
        "C4",
        "a reader takes rows that were covered before",
        Patch(readers, "read_pending", instead.read_untrimmed),
        within=20,
    ),
    _switch(
        "trim-absorb",
        "C4",
        "a controller absorbs rows that were absorbed before",
        Patch(controllers, "to_absorb", instead.absorb_untrimmed),
        within=20,
    ),
    _switch(
        "name-decides",
        "C5",
        "a definite name says the lower bound only; what is deleted was looked at before",
        Patch(pending, "name_of", instead.name_of_lower),
        Patch(pending, "file_of", instead.unnamed),
        within=120,
        mood="names",
    ),
    _switch(
        "lower-name",
        "C7",
        "a compare name says both bounds",
        Patch(pending, "name_of", instead.name_of_both),
        Patch(pending, "file_of", instead.file_of_compare),
        Patch(pending, "read_from", instead.read_all),
        within=20,
        appends="compare",
    ),
    _switch(
        "straddle-dead",
        "C7",
        "compare batches from before the merged upper are taken",
        Patch(pending, "read_from", instead.read_all),
        Patch(pending, "is_taken", instead.always),
        within=20,
        appends="compare",
    ),
    _switch(
        "ack-check",
        "C8",
        "an append is acknowledged when its put was answered",
        Patch(chain, "is_acknowledged", instead.always),
        within=20,
        appends="compare",
    ),
    _switch(
        "walk-check",
        "C9",
        "the end of a walk is believed",
        Patch(Walk, "counts", instead.always),
        within=180,
        mood="walk",
        appends="compare",
    ),
    _switch(
        "cas-hold",
        "C10",
        "a hold is written over whatever is there",
        Patch(holds, "send", instead.put_hold),
        within=50,
        mood="lease",
    ),
    _switch(
        "own-etag",
        "C10",
        "any hold of the own name is the own one",
        Patch(holding, "stands", instead.stands_by_name),
        within=200,
        mood="lease",
    ),
    _switch(
        "hold-check",
        "C11",
        "a new hold is believed when it was put",
        Patch(holding, "registered", instead.always),
        within=40,
        mood="register",
    ),
    _switch(
        "clone-check",
        "C12",
        "a clone is believed when it was put",
        Patch(holding, "covered", instead.covers_all),
        within=80,
        mood="clones",
    ),
    _switch(
        "stop-first",
        "C13",
        "the old version is read after a move was sent",
        Patch(readers, "move", instead.move_and_read_on),
        within=200,
        mood="register",
    ),
    _switch(
        "validate",
        "C14",
        "what was read of a chain counts without a look at the own hold",
        Patch(holding, "counts", instead.always),
        within=50,
        mood="names",
        appends="compare",
    ),
    _switch(
        "holds-first",
        "C14, C28",
        "what a deleted collection holds is collected before its holds",
        Patch(controllers, "remove_holds", instead.remove_holds_last),
        within=60,
        mood="deleted",
        appends="compare",
    ),
    _switch(
        "since-twophase",
        "C16",
        "compaction goes as far as the holds allow that were listed",
        Patch(sweep, "compaction_target", instead.published_or_met),
        within=150,
        behind=UNCHECKED,
    ),
    _switch(
        "meet-all",
        "C16",
        "one hold speaks for all",
        Patch(sweep, "meet_of", instead.last_of),
        within=60,
    ),
    _switch(
        "gc-twophase",
        "C17",
        "versions are needed from the head on, and those that are held",
        Patch(garbage, "lowest_needed", instead.lowest_now),
        within=300,
        mood="register",
    ),
    _switch(
        "list-again",
        "C18",
        "holds are listed once",
        Patch(sweep, "is_fixpoint", instead.always),
        within=150,
        mood="clones",
    ),
    _switch(
        "revoke",
        "C19",
        "a lease that ran out is ignored, not revoked",
        Patch(controllers, "is_revoked", instead.ignored),
        within=20,
        mood="lease",
    ),
    _switch(
        "fence",
        "C20",
        "an edit of any epoch applies",
        Patch(edits, "check_epoch", instead.unfenced),
        within=20,
    ),
    _switch(
        "absorb-cond",
        "C21",
        "what was absorbed is applied wherever the collection ends by now",
        Patch(Absorb, "apply", instead.absorb_anywhere),
        within=40,
        mood="commit",
        behind=UNCHECKED,
    ),
    _switch(
        "merge-cond",
        "C21",
        "a merge is applied if its inputs are not there",
        Patch(edits, "find_neighbours", instead.find_somewhere),
        within=20,
        behind=UNCHECKED,
    ),
    _switch(
        "inflight",
        "C22",
        "files in flight are collected",
        Patch(garbage, "is_in_flight", instead.never),
        within=20,
    ),
    _switch(
        "resolve",
        "C22",
        "a commit that was not answered is taken for settled",
        Patch(controllers, "is_settled", instead.settled_unless_claim),
        within=100,
        mood="walk",
    ),
    _switch(
        "unique-name",
        "C23",
        "merged names say the bounds only",
        Patch(controllers, "merged_name", instead.name_of_bounds),
        Patch(controllers, "file_of_merged", instead.file_of_bounds),
        within=20,
    ),
    _switch(
        "epoch-name",
        "C23",
        "files of a later epoch are collected",
        Patch(garbage, "is_later", instead.never),
        within=80,
        mood="commit",
    ),
    _switch(
        "list-first",
        "C24",
        "files are listed after the versions were read",
        Patch(controllers, "look", instead.look_late),
        within=20,
    ),
    _switch(
        "all-versions",
        "C24",
        "only the lowest needed version and the head are read",
        Patch(garbage, "needed_versions", instead.lowest_and_head),
        within=20,
    ),
    _switch(
        "cutoff-min",
        "C25",
        "pending batches go when the head covers them",
        Patch(garbage, "cut_off", instead.head_cuts_off),
        within=20,
        mood="register",
    ),
)

COLLECTION_SWITCHES: Sequence[Switch] = (*DECISION_SWITCHES, *ROLE_SWITCHES)
