"""What stands in for a rule that is switched off: the same method without the check that carries the rule."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from metastores import names
from metastores.envelope import Kind, unseal
from metastores.protocol import Committed, Conflict, Record, Unknown, VersionRef
from metastores.put_if_absent import PutIfAbsentMetaStore
from slate_async.engine.write.memtables import MemtableEntry
from slate_async.engine.write.sequencer import Sequencer
from slate_async.engine.write.state import WriterState
from slate_async.engine.write.writer import Writer
from slate_async.errors import FencedError, InternalError
from slate_async.metastore_errors import translated
from slate_async.runtime.backoff import Backoff
from slate_async.storage.log import register as codec
from slate_async.storage.log.contiguous import ContiguousLog
from slate_async.storage.log.epoch_prefixed import EpochPrefixedLog
from slate_async.storage.log.listing import contiguous_ids
from slate_async.storage.log.protocol import Inherited, LogObject, Replay
from slate_async.storage.log.recovery import ContiguousWalk, Verdict
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.protocol import Edit
from slate_async.storage.manifest.edits.writer import AddL0, ClaimWriter, PassFences
from slate_async.storage.manifest.state import ManifestState, settle
from tests.simulation.history import Write
from tests.simulation.metadata import SimCell
from tests.simulation.scenarios.engine.compactor import Compact
from tests.simulation.scenarios.tiny import TinyDb


def always(*_: object) -> bool:
    """Yes."""
    return True


def never(*_: object) -> bool:
    """No."""
    return False


async def allowed(*_: object) -> bool:
    """Yes, without asking."""
    return True


def unchecked(*_: object) -> None:
    """No assertion."""


# ---- the manifest

_write_version = ManifestDriver.write


async def unknown_is_success(self: ManifestDriver, old: ManifestState | None, new: ManifestState) -> Any:
    """Rule 1: a committer that is not refused believes to have won."""
    outcome = await _write_version(self, old, new)
    if not isinstance(outcome, Unknown):
        return outcome
    ref = VersionRef((0 if old is None else old.version) + 1, self._runtime.ids.token())
    state = replace(settle(new, ref), ref=ref)
    self._see(state)
    return Committed(state)


_append = TinyDb.append


async def append_without_looking(self: TinyDb, write: Write) -> None:
    """Rule 1: after an outcome it cannot know it writes again."""
    self.looks = False
    await _append(self, write)


_latest = PutIfAbsentMetaStore.latest


async def next_is_not_there(self: PutIfAbsentMetaStore) -> Record | None:
    """Rule 5: the version after the one known is asked for; if it is not there, the one known is the head."""
    seen = self._seen
    while seen is not None:
        version = seen.record.ref.version + 1
        stored = await self._get(names.MANIFEST.version_key(version))
        if stored is None:
            return seen.record
        sealed = unseal(stored.data, kind=Kind.MANIFEST, name=names.MANIFEST.version_key(version))
        self._see(Record(sealed.ref, sealed.payload), stored.etag)
        seen = self._seen
    return await _latest(self)


def add_l0_again(self: AddL0, state: ManifestState) -> ManifestState:
    """Rule 2: neither the epoch nor the log's start is looked at."""
    return replace(
        state,
        log_start=max(state.log_start, self.to_position + 1),
        log_floor=max(state.log_floor, self.log_floor),
        last_seq=max(state.last_seq, self.last_seq),
        last_tick_ms=max(state.last_tick_ms, self.last_tick_ms),
        l0=state.l0 if self.sst is None else (self.sst, *state.l0),
    )


# ---- the contiguous log


async def claim_is_enough(self: ContiguousLog, claimed: ManifestState) -> ManifestState:
    """Rule 9: the head is not read again."""
    return claimed


_present_from = ContiguousLog._present_from


def gaps_unnoticed(self: ContiguousLog, first: int, width: int) -> Any:
    """Next to rule 9: objects far behind a gap do not show that the log's start must have moved."""
    return _present_from(self, first, 1 << 60)


def fence_counts(self: ContiguousLog, base: ManifestState, head: ManifestState, fence_id: int) -> bool:
    """Rules 13 and 21: only the fence is judged, not what was replayed."""
    return head.log_start <= fence_id


async def present_without_deleted(self: ContiguousLog, first: int, width: int) -> AsyncGenerator[LogObject]:
    """Rule 21: an object that was listed and is missing when it is read is left out."""
    async for _, _, found in self._reader.read_ahead(contiguous_ids(self._store, first, 1 << 60)):
        if found is not None:
            yield found


_offer = ContiguousWalk.offer


def offer_behind_a_gap(self: ContiguousWalk, log_id: int, epoch: int) -> Verdict:
    """Next to it: a walk goes on behind what is missing."""
    self.next_id = log_id
    return _offer(self, log_id, epoch)


async def narrow_fence(self: ContiguousLog, state: ManifestState, fence_id: int) -> int:
    """Rule 10: one id."""
    return fence_id


_write = ContiguousLog.write


async def taken_for_own(self: ContiguousLog, log_id: int, data: bytes) -> None:
    """Rule 10: a lower epoch's object at a live writer's id is not looked at."""
    try:
        await _write(self, log_id, data)
    except InternalError:
        return


def no_floor(*_: object) -> int:
    """Rule 12: nothing is ignored from the start."""
    return 0


def floor_from_epoch(*arguments: Any) -> int:
    """Rule 12: the epochs claimed before, whether or not they fenced yet."""
    state: ManifestState = arguments[-1]
    return max(0, state.writer_epoch - 1)


def floor_from_head(state: ManifestState) -> int:
    """Rule 12, for processes that are not writers: the newest claim."""
    return state.writer_epoch


_pass_fences = PassFences.apply


def pass_without_floor(self: PassFences, state: ManifestState) -> ManifestState | None:
    """Rule 12: the log's start moves, ``log_floor`` stays."""
    passed = _pass_fences(self, state)
    return None if passed is None else replace(passed, log_floor=state.log_floor)


def pass_whoever_writes(self: PassFences, state: ManifestState) -> ManifestState | None:
    """Rule 9: the log's start moves although another writer has claimed since."""
    return _pass_fences(replace(self, token=state.writer_token), state)


async def left_unpinned(self: Writer) -> None:
    """Next to it: an opening ends without a commit that asks whose the epoch is."""
    self.state.adopt(self.state.manifest)


# ---- the epoch-prefixed log


_replay = EpochPrefixedLog._replay


async def replay_without_deleted(
    self: EpochPrefixedLog, state: ManifestState, next_id: int, replay: Replay
) -> tuple[list[LogObject], int | None]:
    """Rule 21: what is missing is left out, and the replay stands."""
    objects, missing = await _replay(self, state, next_id, replay)
    replay = OnAndOn(replay)
    while missing is not None:
        more, missing = await _replay(self, replace(state, log_start=missing + 1), next_id, replay)
        objects += more
    return objects, None


class OnAndOn:
    """Does not begin a replay anew."""

    def __init__(self, inner: Replay) -> None:
        self.add = inner.add
        self.drain = inner.drain

    def begin(self, state: ManifestState) -> None:
        """Goes on."""


_validated_head = EpochPrefixedLog._validated_head


async def head_as_claimed(self: EpochPrefixedLog, claimed: ManifestState) -> ManifestState:
    """Rule 21: the head is asked for the claim, not where the log starts."""
    return replace(await _validated_head(self, claimed), log_start=claimed.log_start)


_compare_and_set = SimCell.compare_and_set


def owner_is_enough(self: SimCell, expected_tag: str | None, value: bytes) -> Any:
    """Rule 15: a register in which ``last_written`` is set IF ``writer_epoch`` = mine, however late."""
    mine = self.cell is not None and codec.decode(self.cell.value).epoch == codec.decode(value).epoch
    return _compare_and_set(self, self.cell.tag if mine and self.cell is not None else expected_tag, value)


_claim = codec.WriterRegister.claim


def start_behind_inherited(
    self: codec.WriterRegister,
    epoch: int,
    token: str,
    *,
    inherited_end: int,
    log_start: int,
    held_from: int | None = None,
) -> codec.WriterRegister:
    """Rule 16: ``starting_sst`` behind what is inherited, wherever the manifest's log starts."""
    start = min(log_start, inherited_end + 1)
    return _claim(self, epoch, token, inherited_end=inherited_end, log_start=start, held_from=held_from)


_commit = ManifestDriver.commit
_take_over = EpochPrefixedLog.take_over


async def plan_claim(self: ManifestDriver, edit: Edit) -> ManifestState:
    """Rule 16: a claim is made up only; `register_first` commits it."""
    head = await self.load() if isinstance(edit, ClaimWriter) else None
    planned = None if head is None else edit.apply(head)
    return await _commit(self, edit) if planned is None else planned


async def register_first(self: EpochPrefixedLog, claimed: ManifestState, replay: Replay) -> Inherited:
    """Rule 16: the register is taken, then the claim committed."""
    driver: ManifestDriver = self._load_head.__self__  # type: ignore[attr-defined]
    self._epoch = claimed.writer_epoch
    await self._take_register(claimed, Backoff(self._runtime, self._takeover_deadline_ms, "taking the register"))
    committed = await _commit(driver, ClaimWriter(claimed.writer_token, claimed.fence_width))
    if committed.writer_epoch != claimed.writer_epoch:
        raise FencedError("another writer claimed meanwhile")
    return await _take_over(self, committed, replay)


async def publish_over_anybody(self: Any, log_id: int) -> bool:
    """Rule 15: ``last_written`` is set although another writer owns the register."""
    wanted = self._published(log_id)
    outcome = await translated(self._register.compare_and_set(self._tag, codec.encode(wanted)))
    if isinstance(outcome, Committed):
        self._held, self._tag = wanted, outcome.value
        return True
    if isinstance(outcome, Conflict):
        self._tag = None if outcome.current is None else outcome.current.tag
        return True
    return False


async def take_register_downwards(self: Any, claimed: ManifestState) -> bool:
    """Rule 16: a lower epoch takes the register from a higher one."""
    cell, current = await self._read()
    if current.token == claimed.writer_token:
        self._hold(current, cell)
        return True
    end = await self._end_of(current)
    taken = current.claim(self._epoch, claimed.writer_token, inherited_end=end, log_start=claimed.log_start)
    outcome = await translated(self._register.compare_and_set(None if cell is None else cell.tag, codec.encode(taken)))
    if not isinstance(outcome, Committed):
        return False
    self._held, self._tag = taken, outcome.value
    return True


async def end_at_last_written(self: Any, current: codec.WriterRegister) -> int:
    """Rule 17: what was flushed past ``last_written`` is left behind."""
    return current.last_written


def life_from_last_write(self: Sequencer) -> int:
    """Time to live: it begins with the last write time, however far that is ahead."""
    return self.tick_ms


# ---- flushing


def any_landed(self: Any) -> int:
    """In-order acknowledgement: an object that landed acknowledges everything before it."""
    resolved: dict[int, None] = self._window._resolved
    return max(resolved, default=self._window.resolved_end)


def resolve_out_of_order(self: Any, log_id: int) -> None:
    """In-order acknowledgement: whatever lands is acknowledged at once."""
    self._window.resolve(log_id)
    self._wake.set()
    self._landed.set()


def room_for_parallelism(self: Any) -> bool:
    """The window: as many in flight as allowed, however far they are apart."""
    return bool(self.in_flight < self._parallelism)


def oldest_frozen(self: Any) -> MemtableEntry | None:
    """Rule 19: a table is flushed whether or not its rows have log ids and are acknowledged."""
    return self._memtables.frozen[0] if self._memtables.frozen else None


_adopt = WriterState.adopt


def adopt_silently(self: WriterState, manifest: ManifestState) -> None:
    """Next to rule 19: what the manifest covers and is not acknowledged counts as not durable."""
    before = self.durable_seq
    _adopt(self, manifest)
    self.durable_seq = before


def all_rows(rows: list[Any], state: ManifestState) -> list[Any]:
    """Rule 20, too: not even by sequence number."""
    return rows


def keep_all(pieces: list[Any], head: ManifestState) -> list[Any]:
    """Rule 20: what a follower has read it keeps."""
    return pieces


# ---- compaction


def compact_anyway(self: Compact, state: ManifestState) -> ManifestState | None:
    """Next to rule 13: a compaction applies although another compactor has the role, and whatever became of its
    inputs."""
    if state.runs == self.runs != self.base.runs:
        return None
    return replace(
        state,
        runs=self.runs,
        l0=state.l0[: len(state.l0) - len(self.base.l0)],
        log_start=max(state.log_start, (self.log_end or 0) + 1),
        log_floor=max(state.log_floor, self.log_floor),
        last_seq=max(state.last_seq, self.last_seq),
        last_tick_ms=max(state.last_tick_ms, self.last_tick_ms),
    )
