"""Every rule of the protocols that matters to what is built, each with the way to break it."""

from __future__ import annotations

from collections.abc import Sequence

from metastores.bodies import ObjectBodies
from metastores.put_if_absent import PutIfAbsentMetaStore
from metastores.register_store import RegisterMetaStore
from slate_async.engine.compaction.embedded import EmbeddedCompactor
from slate_async.engine.write.l0_flusher import L0Flusher
from slate_async.engine.write.log_flusher import LogFlusher
from slate_async.engine.write.sequencer import Sequencer
from slate_async.engine.write.state import WriterState
from slate_async.engine.write.writer import Writer
from slate_async.storage.log.contiguous import ContiguousLog
from slate_async.storage.log.epoch_prefixed import EpochPrefixedLog
from slate_async.storage.log.recovery import ContiguousWalk
from slate_async.storage.log.register import WriterRegister
from slate_async.storage.log.window import FlushWindow
from slate_async.storage.manifest import driver
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.writer import AddL0, PassFences
from tests.simulation.metadata import SimCell
from tests.simulation.rules import instead
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.engine import actors, compactor, follower, tail
from tests.simulation.scenarios.engine.compactor import Compact
from tests.simulation.scenarios.engine.scripts import SCRIPTS
from tests.simulation.scenarios.probed import PROBED
from tests.simulation.scenarios.recreated import RECREATED
from tests.simulation.scenarios.tiny import TINY, TinyDb

_TINY = {scenario.name: scenario for scenario in TINY}
_SCRIPTS = {scenario.name.removeprefix("script-"): scenario for scenario in SCRIPTS}
COLLECTED_PUT_IF_ABSENT = _TINY["tiny-put-if-absent-collected"]
COLLECTED_IF_MATCH = _TINY["tiny-if-match-collected"]
CONTIGUOUS = {"protocol": "contiguous", "ack": "committed", "create_by_writers": False}
WAL = {**CONTIGUOUS, "wal": True}
EPOCHS = {"protocol": "epoch_prefixed", "ack": "committed", "create_by_writers": False}
ROUGH = {"faults": 1.0, "freezes": 0.6, "crashes": 0.3, "writers": 4, "lives": 2, "active_seconds": 5.0, "rounds": 16}
MOVING = {"l0_rows": 4, "l0_flushes": 0.3}
SWIFT = {"compactors": 2, "l0_flushes": 0.5, "faults": 1.5, "crashes": 0.0, "freezes": 0.2}
COLLECTED = {"log_collectors": 2}
FOLLOWED = {"followers": 2}
COMPACTED = {"compactors": 1}
PARALLEL = {"parallelism": 4, "tasks": 8, "rounds": 12, "delayed": 0.2, "freezes": 0.2}
CALM = {"tasks": 3, "rounds": 16, "active_seconds": 5.0, "faults": 0.5, "crashes": 0.0, "freezes": 0.2, "lives": 1}
CROWDED = {
    "writers": 4,
    "lives": 1,
    "parallelism": 4,
    "tasks": 8,
    "rounds": 8,
    "delayed": 0.4,
    "crashes": 0.0,
    "freezes": 0.3,
    "active_seconds": 2.5,
}
SLEEPY = {"freezes": 1.0, "crashes": 0.0, "lives": 1}
GAPS = Patch(ContiguousLog, "_present_from", instead.gaps_unnoticed)
UNASSERTED = Patch(driver, "check_successor", instead.unchecked)
UNACKNOWLEDGED = Patch(L0Flusher, "_covered", instead.always)

SWITCHES: Sequence[Switch] = (
    Switch(
        "1-no-mark",
        "1",
        "an edit is repeated without looking for its mark",
        (Patch(TinyDb, "append", instead.append_without_looking),),
        within=100,
        stage=COLLECTED_PUT_IF_ABSENT,
    ),
    Switch(
        "1-unknown-is-success",
        "1",
        "a commit whose outcome is unknown is taken for a success",
        (Patch(ManifestDriver, "write", instead.unknown_is_success),),
        {**WAL, **ROUGH, **MOVING},
        within=200,
    ),
    Switch(
        "2-asserted",
        "2",
        "an L0 flush is applied without looking at the epoch or at where the log starts",
        (Patch(AddL0, "apply", instead.add_l0_again),),
        {**WAL, **ROUGH, **MOVING, **COMPACTED},
        within=120,
    ),
    Switch(
        "2-unasserted",
        "2",
        "the same, the manifest's own assertions off as well",
        (Patch(AddL0, "apply", instead.add_l0_again),),
        {**WAL, **ROUGH, **MOVING, **SWIFT},
        within=500,
        behind=(UNASSERTED,),
    ),
    Switch(
        "4-boundary",
        "4",
        "a committer does not read the deletion boundary after its put",
        (Patch(PutIfAbsentMetaStore, "_boundary_allows", instead.allowed),),
        stage=COLLECTED_PUT_IF_ABSENT,
        within=250,
    ),
    Switch(
        "5-probe",
        "5",
        "a reader asks for the version after the one it knows, and believes that none is there",
        (Patch(PutIfAbsentMetaStore, "latest", instead.next_is_not_there),),
        stage=COLLECTED_PUT_IF_ABSENT,
        within=50,
    ),
    Switch(
        "5-etag",
        "5",
        "a reader does not compare the etag of what it gets with the one that was listed",
        (Patch(PutIfAbsentMetaStore, "_etag_still_listed", instead.always),),
        within=20,
        stage=RECREATED,
    ),
    Switch(
        "7-body-name",
        "7",
        "bodies of manifest versions are named by number alone",
        (Patch(ObjectBodies, "_key", lambda _, ref: f"manifest/{ref.version:020}"),),
        {**WAL, **ROUGH, **MOVING, "metadata": "if-match"},
        within=50,
    ),
    Switch(
        "8-body-above",
        "8",
        "bodies above the head that was read are collected, too",
        (Patch(RegisterMetaStore, "_collectable", instead.always),),
        stage=COLLECTED_IF_MATCH,
        within=50,
    ),
    Switch(
        "9-head",
        "9",
        "the head is not read again after fencing",
        (
            Patch(ContiguousLog, "_validated_head", instead.claim_is_enough),
            Patch(ContiguousLog, "_replay_still_holds", instead.always),
        ),
        {**WAL, **ROUGH, **SLEEPY, **MOVING, **COLLECTED},
        within=400,
        behind=(GAPS,),
    ),
    Switch(
        "9-log-start",
        "9",
        "the head read after fencing is not asked where the log starts",
        (Patch(ContiguousLog, "_replay_still_holds", instead.always),),
        within=20,
        stage=_SCRIPTS["fence-below-the-log"],
    ),
    Switch(
        "10-narrow",
        "10",
        "a takeover fences one id",
        (Patch(ContiguousLog, "_widen_fence", instead.narrow_fence),),
        within=40,
        stage=_SCRIPTS["stuck-put"],
    ),
    Switch(
        "10-narrow-blind",
        "10",
        "a takeover fences one id, and a live writer takes an older one's object at its id for its own",
        (Patch(ContiguousLog, "_widen_fence", instead.narrow_fence),),
        within=40,
        stage=_SCRIPTS["stuck-put"],
        behind=(Patch(ContiguousLog, "write", instead.taken_for_own),),
    ),
    Switch(
        "10-window",
        "10",
        "a writer sends ids further ahead of the lowest unresolved one than it claimed",
        (Patch(FlushWindow, "has_room", property(instead.room_for_parallelism)),),
        within=40,
        stage=_SCRIPTS["stuck-put"],
    ),
    Switch(
        "11-fences",
        "11",
        "the log's collector deletes fences",
        (Patch(actors, "is_fence", instead.never),),
        {**WAL, **ROUGH, **SLEEPY, **MOVING, **COLLECTED},
        within=200,
    ),
    Switch(
        "11-passed",
        "11",
        "fences go once the log's start has moved past them",
        (Patch(actors, "is_fence", instead.never),),
        within=20,
        stage=_SCRIPTS["passed-windows"],
    ),
    Switch(
        "9-passed",
        "9",
        "an opening moves the log's start past fences, and writes, although another writer has claimed since",
        (Patch(PassFences, "apply", instead.pass_whoever_writes),),
        within=20,
        stage=_SCRIPTS["passed-overtaken"],
        behind=(
            Patch(Writer, "pin", instead.left_unpinned),
            Patch(EmbeddedCompactor, "_check_writer", instead.unchecked),
        ),
        hidden=True,
    ),
    Switch(
        "12-passed",
        "12",
        "an opening that moves the log's start past fences leaves log_floor, and fences one id",
        (Patch(PassFences, "apply", instead.pass_without_floor),),
        within=40,
        stage=_SCRIPTS["passed-narrowly"],
        behind=(Patch(ContiguousLog, "_widen_fence", instead.narrow_fence),),
        hidden=True,
    ),
    Switch(
        "12-no-floor",
        "12",
        "nobody ignores epochs below log_floor",
        (
            Patch(ContiguousLog, "_initial_floor", instead.no_floor),
            Patch(tail, "initial_floor", instead.no_floor),
        ),
        {
            **CONTIGUOUS,
            **ROUGH,
            **PARALLEL,
            "wal": False,
            "compactors": 1,
            "bite": 1,
            "lag": 1,
            "crashes": 0.5,
            **FOLLOWED,
        },
        within=300,
    ),
    Switch(
        "12-floor-from-claim",
        "12",
        "epochs below the newest claim are ignored, though objects between a claim and its fence are valid",
        (
            Patch(ContiguousLog, "_initial_floor", instead.floor_from_epoch),
            Patch(tail, "initial_floor", instead.floor_from_head),
        ),
        {**CONTIGUOUS, "wal": False, **COMPACTED, "bite": 1, **FOLLOWED, "lag": 1, **CROWDED},
        within=50,
    ),
    Switch(
        "13-follower",
        "13",
        "a follower believes ids without a head read afterwards",
        (Patch(follower, "still_holds", instead.always),),
        within=60,
        stage=_SCRIPTS["stale-ids"],
    ),
    Switch(
        "13-compactor",
        "13",
        "a compactor without a WAL believes ids without a head read afterwards, and its commit applies to any state",
        (Patch(compactor, "still_holds", instead.always),),
        within=20,
        stage=_SCRIPTS["stale-compactor"],
        behind=(Patch(Compact, "apply", instead.compact_anyway),),
        hidden=True,
    ),
    Switch(
        "15-late",
        "15",
        "the owner of the register sets last_written, also to less than it is",
        (Patch(SimCell, "compare_and_set", instead.owner_is_enough),),
        within=20,
        stage=_SCRIPTS["late-publish"],
    ),
    Switch(
        "15-owner",
        "15",
        "last_written is set although another writer owns the register",
        (Patch(EpochPrefixedLog, "_try_to_publish", instead.publish_over_anybody),),
        {**EPOCHS, **ROUGH},
        within=100,
    ),
    Switch(
        "16-upwards",
        "16",
        "a lower epoch takes the register from a higher one",
        (Patch(EpochPrefixedLog, "_try_to_take", instead.take_register_downwards),),
        {**EPOCHS, **ROUGH},
        within=100,
    ),
    Switch(
        "16-order",
        "16",
        "a takeover takes the register before it claims in the manifest",
        (
            Patch(ManifestDriver, "commit", instead.plan_claim),
            Patch(EpochPrefixedLog, "take_over", instead.register_first),
        ),
        {**EPOCHS, **ROUGH, "crashes": 0.7},
        within=250,
    ),
    Switch(
        "16-start",
        "16",
        "a takeover starts behind what it inherits, wherever the log starts, and a flush runs ahead of the log",
        (Patch(WriterRegister, "claim", instead.start_behind_inherited),),
        within=20,
        stage=_SCRIPTS["flush-ahead-then-crash"],
        behind=(UNACKNOWLEDGED,),
        hidden=True,
    ),
    Switch(
        "17-inherit",
        "17",
        "a takeover does not look for objects past last_written",
        (Patch(EpochPrefixedLog, "_end_of", instead.end_at_last_written),),
        {**EPOCHS, "ack": "flushed", "crashes": 0.7, "lives": 2},
        within=300,
    ),
    Switch(
        "19-acknowledged",
        "19",
        "an L0 flush covers log positions that are not acknowledged, and durable reads do not know what it covered",
        (UNACKNOWLEDGED,),
        within=40,
        stage=_SCRIPTS["flush-ahead"],
        behind=(Patch(WriterState, "adopt", instead.adopt_silently),),
        hidden=True,
    ),
    Switch(
        "19-acknowledged-epochs",
        "19",
        "the same, durable reads know, and a takeover starts behind what it inherits, wherever the log starts",
        (UNACKNOWLEDGED,),
        within=20,
        stage=_SCRIPTS["flush-ahead-then-crash"],
        behind=(Patch(WriterRegister, "claim", instead.start_behind_inherited),),
        hidden=True,
    ),
    Switch(
        "19-whole",
        "19",
        "an L0 flush covers rows that have no log position yet",
        (Patch(L0Flusher, "_ready", instead.oldest_frozen),),
        {"wal": True, **ROUGH, **PARALLEL, **MOVING, "parallelism": 1},
        within=200,
    ),
    Switch(
        "20-adopt",
        "20",
        "a follower that adopts a manifest keeps the log rows below its log_start",
        (Patch(follower, "kept_pieces", instead.keep_all), Patch(follower, "above_l0", instead.all_rows)),
        {**WAL, **MOVING, **COMPACTED, **FOLLOWED, **CALM, "lag": 1},
        within=300,
    ),
    Switch(
        "21-replay",
        "21",
        "a replay stands although the compactor has moved the log's start meanwhile",
        (Patch(ContiguousLog, "_replay_still_holds", instead.fence_counts),),
        within=40,
        stage=_SCRIPTS["stale-ids"],
    ),
    Switch(
        "21-missing",
        "21",
        "a replay leaves out what is missing, and stands although the log's start has moved",
        (
            Patch(ContiguousLog, "_present_from", instead.present_without_deleted),
            Patch(ContiguousWalk, "offer", instead.offer_behind_a_gap),
            Patch(ContiguousLog, "_replay_still_holds", instead.fence_counts),
        ),
        within=20,
        stage=_SCRIPTS["deleted-under-an-opener"],
    ),
    Switch(
        "21-missing-epochs",
        "21",
        "the same with the epoch-prefixed log",
        (
            Patch(EpochPrefixedLog, "_replay", instead.replay_without_deleted),
            Patch(EpochPrefixedLog, "_validated_head", instead.head_as_claimed),
        ),
        within=20,
        stage=_SCRIPTS["deleted-under-an-opener-epochs"],
    ),
    Switch(
        "life",
        "time to live",
        "a row's life begins with the last write time, however far that is ahead of the writer's clock",
        (Patch(Sequencer, "_life_start", instead.life_from_last_write),),
        within=10,
        stage=_SCRIPTS["clock-jumped"],
    ),
    Switch(
        "order",
        "§3",
        "an object that landed acknowledges every earlier one",
        (
            Patch(LogFlusher, "_ack_end", instead.any_landed),
            Patch(LogFlusher, "_resolve", instead.resolve_out_of_order),
        ),
        {**ROUGH, **PARALLEL, "ack": "committed"},
        within=150,
    ),
    Switch(
        "probe-no-keep",
        "§5",
        "polls ask for the next version only, and collectors keep none for its age",
        (Patch(PutIfAbsentMetaStore, "_old_enough", instead.always),),
        within=20,
        stage=PROBED,
    ),
    Switch(
        "probe-no-end",
        "§5",
        "a probe is believed however long ago the last listing was",
        (Patch(PutIfAbsentMetaStore, "_next_is_kept", instead.always),),
        within=20,
        stage=PROBED,
    ),
)
