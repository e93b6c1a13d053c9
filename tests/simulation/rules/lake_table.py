"""The rules of collections that a role of the product keeps, each with the way to break it there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slate_async.collections import deletion
from slate_async.collections.codec.life import Appends
from slate_async.collections.controller import absorb, collect, flights, merger, pending
from slate_async.collections.controller import round as rounds
from slate_async.collections.controller import sweep as sweeping
from slate_async.collections.controller.service import ControllerService
from slate_async.collections.controller.standby import StandbyController
from slate_async.collections.controller.sweep import Sweep
from slate_async.collections.core import edits, garbage, holding, reading, sweep
from slate_async.collections.core.chain import Walk
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import PendingName
from slate_async.collections.core.times import TimeKind
from slate_async.collections.reader import follow
from slate_async.collections.reader.pins import Pins
from slate_async.collections.reader.renewal import KeptHold
from slate_async.collections.reader.sources import Selection
from slate_async.collections.store import versions
from slate_async.collections.store.holds import HoldStore
from slate_async.collections.store.lives import BeginLife
from slate_async.collections.store.pending import PendingStore
from slate_async.collections.store.versions import AreaVersions
from slate_async.collections.writer import compare
from tests.simulation.rules import collections_instead as instead
from tests.simulation.rules import lake_instead
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.lake.lives import LIVES
from tests.simulation.scenarios.lake.play import lake_scenario
from tests.simulation.scenarios.lake.scripts import LAKE_SCRIPTS
from tests.simulation.scenarios.lake.services import SERVED_CALMLY
from tests.simulation.scenarios.protocol import Scenario

_SCRIPTS = {scenario.name.removeprefix("script-collections-"): scenario for scenario in LAKE_SCRIPTS}
LONG: dict[str, Any] = {"active_seconds": 4.0, "metastore": "server", "page_keys": 1000}
STEADY: dict[str, Any] = {"controllers": 1, "crashes": 0.0}
UNCHECKED = (
    Patch(versions, "check_successor", instead.unchecked),
    Patch(edits, "check_result", instead.unchecked),
)
"""Assertions that notice what a wrong edit makes before a reader does."""
SLEEPY: dict[str, Any] = {"freezes": 0.5, "lease_ms": 100}


def _switch(
    name: str,
    rule: str,
    broken: str,
    *patches: Patch,
    within: int,
    script: str | None = None,
    stage: Scenario | None = None,
    **fixed: Any,
) -> Switch:
    """``script``: its name; ``stage``: what is played. Without both, a play by chance with these `LakeParams`."""
    chosen = {"readers": 2, "listeners": 1, **fixed}
    if script is not None:
        stage = _SCRIPTS[script]
    elif stage is None:
        stage = lake_scenario(f"collections-{name}", "a stage", **chosen)
    return Switch(f"collections-{name}", rule, broken, patches, within=within, stage=stage)


ROLE_SWITCHES: Sequence[Switch] = (
    _switch(
        "listener-no-cut",
        "C2",
        "a listener of the product moves to any version",
        Patch(reading, "may_adopt", instead.always),
        within=80,
        listeners=2,
        readers=1,
    ),
    _switch(
        "reader-contiguous",
        "C4",
        "a reader of the product takes batches across gaps",
        Patch(follow, "extend", instead.extend_in_any_order),
        within=80,
        appends=Appends.DEFINITE,
        copies=1,
        names=2,
        faults=1.0,
        parallelism=4,
        **LONG,
    ),
    _switch(
        "writer-ack-check",
        "C8",
        "a writer of the product acknowledges an append when its put was answered (compare)",
        Patch(compare, "is_acknowledged", instead.always),
        within=160,
        appends=Appends.COMPARE,
        copies=2,
        names=2,
        faults=1.0,
        lateness=2.0,
        freezes=0.5,
    ),
    _switch(
        "reader-cas-hold",
        "C10",
        "a reader of the product writes its hold over whatever is there",
        Patch(HoldStore, "write", lake_instead.write_over),
        within=80,
        readers=3,
        **SLEEPY,
        **STEADY,
        **LONG,
    ),
    _switch(
        "controller-meet-all",
        "C16",
        "one hold speaks for all to a controller of the product",
        Patch(sweep, "meet_of", instead.last_of),
        within=60,
        readers=3,
    ),
    _switch(
        "controller-fence",
        "C20",
        "a controller of the product commits in any epoch",
        Patch(edits, "check_epoch", instead.unfenced),
        Patch(rounds, "check_epoch", instead.unchecked),
        Patch(merger, "check_epoch", instead.unchecked),
        within=20,
        controllers=3,
    ),
    _switch(
        "controller-inflight",
        "C22",
        "a controller of the product collects what it has in flight",
        Patch(garbage, "is_in_flight", instead.never),
        within=20,
        script="unanswered-merge",
    ),
    _switch(
        "controller-list-first",
        "C24",
        "a controller of the product lists files after it has read the versions",
        Patch(collect, "look", lake_instead.look_late),
        within=80,
        faults=0.4,
        **STEADY,
        **LONG,
    ),
    _switch(
        "controller-all-versions",
        "C24",
        "a controller of the product reads only the lowest needed version and the head",
        Patch(garbage, "needed_versions", instead.lowest_and_head),
        within=60,
    ),
    _switch(
        "controller-cutoff-min",
        "C25",
        "a controller of the product deletes pending batches that the head covers",
        Patch(garbage, "cut_off", instead.head_cuts_off),
        within=40,
        controllers=1,
        **LONG,
    ),
    Switch(
        "collections-lake-folder",
        "C28",
        "the next life of a collection has the folder of the one before it",
        (Patch(BeginLife, "apply", lake_instead.in_one_folder),),
        within=20,
        stage=LIVES,
    ),
    _switch(
        "controller-advance",
        "C1",
        "a controller of the product joins the elements of a since",
        Patch(Frontier, "advance_by", lake_instead.joined),
        within=900,
        kind=TimeKind.U64X2,
        readers=3,
        **LONG,
    ),
    _switch(
        "listener-strict",
        "C2",
        "a listener of the product is restarted where times were compacted to",
        Patch(reading, "is_cut_at", instead.cut_where_compacted),
        Patch(reading, "to_restart_from", instead.all_of_it),
        within=20,
        script="restarted-listener",
    ),
    _switch(
        "reader-since-check",
        "C3",
        "a reader of the product trusts its own since, not that of the version",
        Patch(reading, "may_read", instead.always),
        Patch(reading, "may_restart", instead.always),
        within=20,
        script="lost-while-it-waits",
    ),
    _switch(
        "reader-trim",
        "C4",
        "a reader of the product takes rows that were covered before",
        Patch(Selection, "of_unsorted", lake_instead.untrimmed),
        within=20,
        script="late-shard",
    ),
    _switch(
        "controller-trim",
        "C4",
        "a controller of the product absorbs rows that were absorbed before",
        Patch(pending, "is_whole", instead.always),
        within=60,
        appends=Appends.DEFINITE,
        names=2,
    ),
    _switch(
        "store-name-decides",
        "C5",
        "a definite name says the lower bound only, to the product as well",
        Patch(PendingName, "__str__", lake_instead.name_of_lower),
        Patch(PendingStore, "list", lake_instead.list_described),
        within=20,
        appends=Appends.DEFINITE,
        copies=2,
        faults=1.0,
        lateness=2.0,
    ),
    _switch(
        "writer-unanswered",
        "C6",
        "a writer of the product takes a put without an answer for one that was answered yes (definite)",
        Patch(PendingStore, "put", lake_instead.taken_for_answered),
        within=60,
        appends=Appends.DEFINITE,
        faults=1.0,
    ),
    _switch(
        "store-lower-name",
        "C7",
        "a compare name says both bounds, to the product as well",
        Patch(PendingStore, "put", lake_instead.put_by_both),
        Patch(PendingStore, "describe", lake_instead.describe_by_lower),
        Patch(PendingStore, "look", lake_instead.look_by_lower),
        Patch(PendingStore, "read", lake_instead.read_by_lower),
        Patch(PendingStore, "list", lake_instead.list_by_lower),
        within=40,
        appends=Appends.COMPARE,
        copies=2,
        names=2,
    ),
    _switch(
        "controller-straddle",
        "C7",
        "a controller of the product takes batches of a chain wherever they begin (compare)",
        Patch(absorb, "pieces", lake_instead.straddling),
        Patch(pending, "may_extend", instead.always),
        within=20,
        script="dead-batch",
    ),
    _switch(
        "reader-own-etag",
        "C10",
        "a reader of the product takes any hold of its name for its own",
        Patch(holding, "stands", instead.stands_by_name),
        within=20,
        script="ghost",
    ),
    _switch(
        "reader-hold-check",
        "C11",
        "a reader of the product believes a new hold when it was put",
        Patch(holding, "registered", instead.always),
        within=20,
        script="late-registration",
    ),
    _switch(
        "reader-clone-check",
        "C12",
        "a reader of the product believes a clone when it was put",
        Patch(holding, "covered", instead.covers_all),
        within=20,
        script="late-clone",
    ),
    _switch(
        "reader-stop-first",
        "C13",
        "the hold of a reader of the product moves past versions that it reads",
        Patch(Pins, "lowest", lake_instead.newest),
        within=80,
        readers=3,
        **LONG,
    ),
    _switch(
        "reader-validate",
        "C14",
        "what a reader of the product found in a chain counts without a look at its hold (compare)",
        Patch(KeptHold, "check_standing", lake_instead.unlooked),
        within=20,
        script="reborn-name",
    ),
    _switch(
        "reader-explain",
        "C15",
        "a reader of the product takes what is missing for damage, whatever became of its hold",
        Patch(holding, "judge_missing", lake_instead.damaged),
        within=20,
        script="overdue-reader",
    ),
    _switch(
        "controller-since-twophase",
        "C16",
        "a controller of the product compacts as far as the holds allow that were listed",
        Patch(rounds, "compaction_target", instead.published_or_met),
        within=20,
        script="registered-meanwhile",
    ),
    _switch(
        "controller-gc-twophase",
        "C17",
        "a controller of the product needs versions from the head on, and those that are held",
        Patch(garbage, "lowest_needed", instead.lowest_now),
        within=250,
        readers=3,
        sessions="short",
        **LONG,
    ),
    _switch(
        "controller-revoke",
        "C19",
        "a controller of the product ignores a lease that ran out, and does not revoke it",
        Patch(Sweep, "_is_revoked", lake_instead.ignored),
        within=20,
        script="slow-reader",
    ),
    _switch(
        "controller-absorb-cond",
        "C21",
        "a controller of the product applies what it absorbed wherever the collection ends by now",
        Patch(edits.Absorb, "apply", lake_instead.absorbed_anywhere),
        *UNCHECKED,
        within=20,
        script="absorbed-twice",
    ),
    _switch(
        "controller-merge-cond",
        "C21",
        "a controller of the product applies a merge whose inputs are not there any more",
        Patch(edits, "find_neighbours", instead.find_somewhere),
        *UNCHECKED,
        within=20,
        script="merged-twice-over",
    ),
    _switch(
        "controller-resolve",
        "C22",
        "a controller of the product takes a commit that was not answered for settled",
        Patch(flights, "is_open", instead.never),
        within=20,
        script="unanswered-merge",
    ),
    _switch(
        "controller-unique-name",
        "C23",
        "merged names of a controller of the product say epoch and bounds only",
        Patch(absorb, "MergedName", lake_instead.name_without_token),
        Patch(merger, "MergedName", lake_instead.name_without_token),
        within=20,
        script="merged-twice",
    ),
    _switch(
        "controller-epoch-name",
        "C23",
        "a controller of the product collects files of a later epoch",
        Patch(garbage, "is_later", instead.never),
        within=20,
        script="successor-at-work",
    ),
    _switch(
        "controller-no-holds",
        "C29",
        "a controller of the product gives up all times when nobody holds any",
        Patch(edits.Publish, "apply", lake_instead.publish_without_holds),
        within=20,
        script="unread",
    ),
    _switch(
        "controller-damaged-holds",
        "C18",
        "a controller of the product leaves out holds that it cannot read",
        Patch(Sweep, "_read_all", lake_instead.sound_only),
        within=20,
        script="damaged-holds",
    ),
    _switch(
        "controller-list-again",
        "C18",
        "a controller of the product lists holds once",
        Patch(sweeping, "is_complete", lake_instead.listed_once),
        within=20,
        script="clones-in-a-row",
    ),
    _switch(
        "writer-walk-check",
        "C9",
        "a writer of the product believes the end of a walk (compare)",
        Patch(Walk, "counts", instead.always),
        within=20,
        script="walk-overtaken",
    ),
    _switch(
        "deletion-holds-first",
        "C14",
        "who deletes a collection removes what it holds before its holds",
        Patch(deletion, "remove_dead", lake_instead.remove_holds_last),
        within=20,
        script="deleted-under-a-reader",
    ),
    _switch(
        "controller-beyond",
        "C30",
        "a controller of the product takes the newest version that it finds for the newest one",
        Patch(garbage, "is_beyond", instead.never),
        within=20,
        script="lost-version",
    ),
    _switch(
        "writer-beyond",
        "C30",
        "a writer of the product takes the end of a chain for its end, whatever lies beyond (compare)",
        Patch(compare, "find_lost", lake_instead.nothing_lost),
        within=20,
        script="lost-end-of-a-chain",
    ),
    _switch(
        "controller-links",
        "C30",
        "a controller of the product takes any batch that reaches further for what a merged one was made of (compare)",
        Patch(garbage.PendingEnds, "explain", lake_instead.reached),
        within=20,
        script="chain-goes-on-elsewhere",
    ),
    _switch(
        "controller-absorbs-dead",
        "C30",
        "a controller of the product puts what it read of a chain without a look at the head (compare)",
        Patch(absorb.Absorption, "_counts", lake_instead.counted),
        within=20,
        script="absorbed-dead-batch",
    ),
    _switch(
        "service-patience",
        "C20",
        "a service of the product takes the role back as soon as another one has it",
        Patch(ControllerService, "_until_work_waits", lake_instead.without_patience),
        within=20,
        stage=SERVED_CALMLY,
    ),
    _switch(
        "standby-patience",
        "C20",
        "a writer of the product takes the role as soon as it has none",
        Patch(StandbyController, "_until_work_waits", lake_instead.no_patience),
        within=20,
        stage=SERVED_CALMLY,
    ),
    _switch(
        "controller-falls",
        "C26",
        "a controller of the product takes a bound back to what a clone holds; its assertions are off",
        Patch(edits, "raised", lake_instead.fallen),
        Patch(versions, "check_successor", instead.unchecked),
        within=250,
        readers=3,
        **LONG,
    ),
    _switch(
        "controller-old-versions",
        "C27",
        "a controller of the product deletes all versions below the newest one",
        Patch(AreaVersions, "collect", lake_instead.collect_all),
        within=60,
        readers=3,
        verifiers=1,
        **LONG,
    ),
)
