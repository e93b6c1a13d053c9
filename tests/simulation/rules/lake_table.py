"""The rules of collections that a role of the product keeps, each with the way to break it there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller import collect, merger
from slate_async.collections.controller import round as rounds
from slate_async.collections.core import edits, garbage, reading, sweep
from slate_async.collections.reader import follow
from slate_async.collections.store.holds import HoldStore
from slate_async.collections.store.lives import BeginLife
from slate_async.collections.writer import compare
from tests.simulation.rules import collections_instead as instead
from tests.simulation.rules import lake_instead
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.lake.lives import LIVES
from tests.simulation.scenarios.lake.play import lake_scenario

LONG: dict[str, Any] = {"active_seconds": 4.0, "metastore": "server", "page_keys": 1000}
STEADY: dict[str, Any] = {"controllers": 1, "crashes": 0.0}
SLEEPY: dict[str, Any] = {"freezes": 0.5, "lease_ms": 100}


def _switch(name: str, rule: str, broken: str, *patches: Patch, within: int, **fixed: Any) -> Switch:
    chosen = {"readers": 2, "listeners": 1, **fixed}
    return Switch(
        f"collections-{name}",
        rule,
        broken,
        patches,
        within=within,
        stage=lake_scenario(f"collections-{name}", "a stage", **chosen),
    )


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
        within=80,
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
        within=300,
        faults=0.4,
        **STEADY,
        **LONG,
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
)
