"""Switches of rules 30 and 31: what bulk ingests beside a live writer rest on."""

from __future__ import annotations

from collections.abc import Sequence

from slate_async.engine.follow import follower as following
from slate_async.engine.gc import reachable
from slate_async.engine.ingest import manage, sst_writer
from slate_async.engine.ingest.ending import Ending
from slate_async.engine.write.sequencer import Sequencer
from slate_async.storage.manifest import driver
from slate_async.storage.manifest.edits import apply_ingests, ingests
from slate_async.storage.manifest.edits.apply_ingests import ApplyIngests
from tests.simulation.rules import ingest_instead, instead
from tests.simulation.rules.life_table import _ALONE
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.engine import follower
from tests.simulation.scenarios.leases import LEASE_SCRIPTS, LEASES
from tests.simulation.scenarios.life import replacers
from tests.simulation.scenarios.life.play import life_scenario
from tests.simulation.scenarios.life.scripts import LIFE_SCRIPTS
from tests.simulation.scenarios.queries import QUERY_SCRIPTS

UNASSERTED = Patch(driver, "check_successor", instead.unchecked)
ANY_NUMBER = Patch(ingests, "counts_anew", instead.never)
_INGESTED = {"ingesters": 2, "rounds": 12, "active_seconds": 5.0}
_LIFE = {**_ALONE, **_INGESTED}
_REPLACING = life_scenario(
    "life",
    "what a switch runs",
    **{
        **_LIFE,
        "ingesters": 1,
        "writers": 1,
        "rounds": 6,
        "lives": 1,
        "faults": 0.5,
        "crashes": 0.0,
        "freezes": 0.0,
    },
)
_ALL_REPLACE = Patch(replacers, "REPLACING", 1.0)
"""With few writes beside, what a job has not deleted is there in the end."""

INGEST_SWITCHES: Sequence[Switch] = (
    Switch(
        "30-number",
        "30",
        "an ingest takes the number of the last row that was flushed",
        (Patch(ApplyIngests, "apply", ingest_instead.under_the_last_number),),
        _INGESTED,
        within=60,
        behind=(UNASSERTED,),
    ),
    Switch(
        "30-pause",
        "30",
        "writes go on while an ingest is applied; the manifest's assertions are off",
        (Patch(Sequencer, "paused", ingest_instead.never_paused),),
        {**_INGESTED, "wal": True, "tasks": 3, "l0_rows": 4},
        within=150,
        behind=(UNASSERTED,),
    ),
    Switch(
        "30-after",
        "30",
        "rows that are written after an ingest may have its number",
        (Patch(Sequencer, "continue_after", ingest_instead.number_left_alone),),
        _INGESTED,
        within=60,
    ),
    Switch(
        "30-follower",
        "30",
        "a follower shows log rows before the ingest that they follow",
        (Patch(follower, "applies_more", instead.never),),
        {**_INGESTED, "followers": 2, "lag": 8},
        within=100,
    ),
    Switch(
        "30-reader",
        "30",
        "a `DbReader` shows log rows before the ingest that they follow",
        (Patch(following, "lacks_ingest", instead.never),),
        within=40,
        stage=next(life_script for life_script in LIFE_SCRIPTS if life_script.name == "script-ingest-followed"),
    ),
    Switch(
        "30-pending",
        "26, 30",
        "a collector forgets pending ingests",
        (Patch(reachable, "pending_ssts", ingest_instead.nothing_pending),),
        within=60,
        stage=life_scenario("life", "what a switch runs", **{**_LIFE, "collectors": 2}),
    ),
    Switch(
        "30-batch",
        "30",
        "a batch is taken whether it is in or not",
        (Patch(ingests, "committed_batch", ingest_instead.no_batch),),
        {**_INGESTED, "faults": 1.5},
        within=150,
    ),
    Switch(
        "30-query",
        "30",
        "any query may count the batches of a stream",
        (Patch(ingests, "counting_query", ingest_instead.no_query), ANY_NUMBER),
        within=20,
        stage=QUERY_SCRIPTS[0],
    ),
    Switch(
        "30-query-pending",
        "30",
        "a query counts the batches of a stream once one of them is applied",
        (Patch(ingests, "counting_query", ingest_instead.query_that_applied), ANY_NUMBER),
        within=200,
        stage=QUERY_SCRIPTS[0],
    ),
    Switch(
        "30-query-named",
        "30",
        "the first query that is named for an app may begin with any batch",
        (ANY_NUMBER,),
        within=20,
        stage=QUERY_SCRIPTS[2],
    ),
    Switch(
        "30-forgotten",
        "30",
        "an app is forgotten, and the jobs of its batches are not",
        (Patch(ingests.ForgetApp, "apply", ingest_instead.forgotten_but_for_jobs),),
        within=20,
        stage=QUERY_SCRIPTS[1],
    ),
    Switch(
        "31-lease",
        "31",
        "a writer applies what is pending, whether its lease has ended or not",
        (Patch(apply_ingests, "lease_ended", instead.never),),
        within=10,
        stage=LEASE_SCRIPTS[0],
    ),
    Switch(
        "31-abort",
        "31",
        "the error of a commit leaves the call before its job is aborted",
        (Patch(Ending, "run", ingest_instead.taken_for_aborted),),
        within=40,
        stage=LEASES[0],
    ),
    Switch(
        "22-replaced",
        "22",
        "an ingest replaces what is in SSTs, whatever is in the log",
        (Patch(manage, "_base", ingest_instead.base_without_log),),
        within=250,
        stage=life_scenario("life", "what a switch runs", **_LIFE),
    ),
    Switch(
        "30-replaced-range",
        "30",
        "the tasks of an ingest that replaces delete nothing",
        (Patch(sst_writer, "over_deletes", ingest_instead.only_rows),),
        within=60,
        stage=_REPLACING,
        behind=(_ALL_REPLACE,),
    ),
    Switch(
        "30-replaced-gaps",
        "30",
        "the driver of an ingest that replaces deletes nothing",
        (Patch(sst_writer, "gaps", ingest_instead.no_gaps),),
        within=60,
        stage=_REPLACING,
        behind=(_ALL_REPLACE,),
    ),
)
