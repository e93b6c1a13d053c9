"""What stands in for a rule that is switched off: the same method without the check that carries the rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from metastores import names
from metastores.envelope import Kind, unseal
from metastores.protocol import Committed, Conflict, Record, VersionRef
from metastores.put_if_absent import PutIfAbsentMetaStore
from slate_async.errors import InternalError
from slate_async.log import register as codec
from slate_async.log.contiguous import ContiguousLog
from slate_async.manifest.driver import ManifestDriver, translated
from slate_async.manifest.edits import AddL0
from slate_async.manifest.state import ManifestState
from slate_async.write.tables import Slot
from tests.simulation.history import Write
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

_attempt = ManifestDriver._attempt


async def unknown_is_success(self: ManifestDriver, old: ManifestState | None, new: ManifestState) -> Any:
    """Rule 1: whoever is not refused believes to have won."""
    before = self.stats.unknowns
    state = await _attempt(self, old, new)
    if state is None and self.stats.unknowns > before:
        state = replace(new, ref=VersionRef((0 if old is None else old.version) + 1, self._runtime.ids.token()))
        self._see(state)
    return state


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
        stored = await self._get(names.manifest_key(version))
        if stored is None:
            return seen.record
        sealed = unseal(stored.data, kind=Kind.MANIFEST, name=names.manifest_key(version))
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


async def gaps_unnoticed(self: ContiguousLog, first: int, width: int) -> Any:
    """Next to rule 9: objects far behind a gap do not show that the log's start must have moved."""
    return await _present_from(self, first, 1 << 60)


def fence_counts(self: ContiguousLog, base: ManifestState, head: ManifestState, fence_id: int) -> bool:
    """Rule 21: only the fence is judged, not what was replayed."""
    return head.log_start <= fence_id


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
    """Rule 12, for those who are not writers: the newest claim."""
    return state.writer_epoch


# ---- the epoch-prefixed log


async def publish_over_anybody(self: Any, log_id: int) -> bool:
    """Rule 15: ``last_written`` is set whoever owns the register."""
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


# ---- flushing


def any_landed(self: Any) -> int:
    """In-order acknowledgement: an object that landed acknowledges everything before it."""
    resolved: dict[int, None] = self._window._resolved
    return max(resolved, default=self._window.resolved_end)


def resolve_out_of_order(self: Any, log_id: int) -> None:
    """In-order acknowledgement: whatever lands is told at once."""
    self._window.resolve(log_id)
    self._wake.set()
    self._landed.set()


def room_for_parallelism(self: Any) -> bool:
    """The window: as many in flight as allowed, however far they are apart."""
    return bool(self.in_flight < self._parallelism)


def oldest_frozen(self: Any) -> Slot | None:
    """Rule 19: a table is flushed whether or not its rows have log ids and are acknowledged."""
    return self._tables.frozen[0] if self._tables.frozen else None


def all_rows(rows: list[Any], state: ManifestState) -> list[Any]:
    """Rule 20, too: not even by sequence number."""
    return rows


def keep_all(pieces: list[Any], head: ManifestState) -> list[Any]:
    """Rule 20: what a follower has read it keeps."""
    return pieces
