"""The log: everything that lies under ``log/``, against the manifest, the writer's register and its own checksums.

Only objects that may still be read are read whole; of what waits for a collector, the header, which says whose it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from slate_async.codec.header import HEADER_BYTES, ObjectHeader, ObjectKind, check_body, decode_header
from slate_async.engine.gc.log import LogJudge, held_log
from slate_async.errors import CorruptionError, InvalidError
from slate_async.maintenance.verify.sst import ExpectedSst, check_sst
from slate_async.objectstore.protocol import ObjectInfo, ObjectNotFoundError, ObjectStore, Span
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.runtime.protocol import Offload
from slate_async.storage.format.log_segment import log_object_id
from slate_async.storage.log.extent import log_keys
from slate_async.storage.log.names import PREFIX
from slate_async.storage.log.object_status import LogName, LogObjectStatus, Seen, classify, log_name
from slate_async.storage.log.protocol import LogObject
from slate_async.storage.log.register import EMPTY, WriterRegister
from slate_async.storage.log.rows import count_range_deletes, decoded_rows
from slate_async.storage.manifest.state import ManifestState
from slate_async.types import Finding, finding_of

IN_PARALLEL = 4
"""Log objects in memory at once; one is as large as a flush was."""
REGISTER = "writer register"


@dataclass(slots=True)
class CheckedObject:
    """One log object. ``header`` is ``None`` if the object was deleted meanwhile, or is unreadable; ``seqs``: its
    rows'."""

    info: ObjectInfo
    name: LogName
    header: ObjectHeader | None = None
    seqs: tuple[int, int] | None = None
    whole: bool = False
    blocks: int = 0
    rows: int = 0
    range_deletes: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)


class LogCheck:
    """Checks the log of one database by one committed state and the register.

    keys: SSTs that the manifest names, log objects among them
    decoding: memory for what is decoded of an object"""

    def __init__(
        self,
        store: ObjectStore,
        state: ManifestState,
        register: WriterRegister | None,
        keys: frozenset[str],
        offload: Offload,
        decoding: MemoryBudget,
    ) -> None:
        self._store = store
        self._state = state
        self._register = register
        self._offload = offload
        self._decoding = decoding
        self._judge = LogJudge(state, keys, register)

    async def listed(self) -> tuple[list[tuple[ObjectInfo, LogName]], list[Finding]]:
        """Log objects in the order of positions, and notes about what else lies there."""
        found: list[tuple[ObjectInfo, LogName]] = []
        notes: list[Finding] = []
        async for info in self._store.list(PREFIX):
            name = log_name(self._state.log_protocol, info.key)
            if name is None:
                notes.append(Finding(info.key, None, "is not the name of a log object; left alone"))
            else:
                found.append((info, name))
        return sorted(found, key=lambda entry: (entry[1].position, entry[1].epoch or 0)), notes

    async def check(self, info: ObjectInfo, name: LogName) -> CheckedObject:
        """Read one object. Raises `UnavailableError`."""
        checked = CheckedObject(info, name)
        garbage = self._judge.why_garbage(info)
        try:
            if garbage is None:
                await self._read_whole(checked)
            else:
                checked.notes.append(Finding(info.key, None, f"waits for a garbage collector: {garbage}", info.size))
                checked.header = self._decode(checked, (await self._store.get(info.key, Span(0, HEADER_BYTES))).data)
        except ObjectNotFoundError:
            return CheckedObject(info, name)  # collected since the listing; what must be there is looked for apart
        except CorruptionError as error:
            checked.findings.append(finding_of(error))
        except InvalidError as error:
            checked.findings.append(Finding(info.key, None, str(error)))
        return checked

    def _decode(self, checked: CheckedObject, data: bytes) -> ObjectHeader:
        name, key, state = checked.name, checked.info.key, self._state
        # Fences outlive their database: one that is recreated on the path starts its log behind them.
        inherited = checked.info.size == HEADER_BYTES and name.position < state.log_start
        header = decode_header(
            data,
            object_name=key,
            database_id=None if inherited else state.database_id,
            object_id=log_object_id(name.position),
        )
        if name.epoch is not None and name.epoch != header.writer_epoch:
            raise CorruptionError(
                f"was written by epoch {header.writer_epoch}, not by its position's owner", object_name=key
            )
        return header

    async def _read_whole(self, checked: CheckedObject) -> None:
        key, size = checked.info.key, checked.info.size
        holds_rows = self._state.wal_enabled or size <= HEADER_BYTES
        got = await self._store.get(key, None if holds_rows else Span(0, HEADER_BYTES))
        data = got.data
        header = checked.header = self._decode(checked, data)
        checked.whole = True
        wanted = ObjectKind.LOG_SEGMENT if self._state.wal_enabled else ObjectKind.SST
        if header.kind is ObjectKind.FENCE:
            check_body(header, data, object_name=key)
        elif header.kind is not wanted:
            raise CorruptionError(f"is a {header.kind.name}, not a {wanted.name}", object_name=key, offset=10)
        elif header.kind is ObjectKind.SST:
            done = await check_sst(
                ExpectedSst(self._store, key, size, header.database_id, header.object_id),
                self._offload,
                self._decoding,
            )
            if done.missing:
                raise ObjectNotFoundError(key)
            checked.seqs, checked.blocks, checked.rows = done.seqs, done.blocks, done.rows
            checked.findings += done.findings
        else:
            logged = LogObject(checked.name.position, key, got.info.size, header, data)
            async with decoded_rows(logged, self._offload, self._decoding) as rows:
                if bool((np.diff(rows.seqs.astype(np.int64)) <= 0).any()):
                    raise CorruptionError("its rows are not in the order of their sequence numbers", object_name=key)
                checked.rows, checked.seqs = len(rows), (int(rows.seqs[0]), int(rows.seqs[-1]))
                checked.range_deletes = count_range_deletes(rows)

    async def missing(self, present: frozenset[str]) -> list[Finding]:
        """What the state and its checkpoints need, and is neither among the listed keys nor there now. It counts if a
        head read afterwards needs it, too: see `needed`."""
        wanted, findings = await self._offload.run(lambda: self._wanted(present))

        async def look(key: str) -> Finding | None:
            try:
                await self._store.head(key)
            except ObjectNotFoundError:
                return Finding(key, None, f"is missing, and {wanted[key]} needs it")
            return None

        looked = await map_bounded(look, list(wanted), IN_PARALLEL) if wanted else []
        return findings + [finding for finding in looked if finding is not None]

    async def needed(self, present: frozenset[str]) -> frozenset[str]:
        """Keys that the state and its checkpoints need besides those listed."""
        wanted, _ = await self._offload.run(lambda: self._wanted(present))
        return frozenset(wanted)

    def _wanted(self, present: frozenset[str]) -> tuple[dict[str, str], list[Finding]]:
        """Keys that are not ``present``, with the head or checkpoint that needs them; and positions without an owning
        epoch."""
        state, wanted, findings = self._state, dict[str, str](), list[Finding]()
        end, owners = self._end(present)
        spans: list[tuple[str, int, int, Sequence[tuple[int, int]]]] = [("the head", state.log_start, end, owners)]
        for checkpoint in state.checkpoints:
            held, who = held_log(checkpoint), f"checkpoint {checkpoint.id}"
            if held.last is not None:
                spans.append((who, held.first, held.last, checkpoint.log_ranges))
            else:  # whose the positions are that only a reader may still want, the register need not know
                first = held.first if state.log_protocol == "contiguous" else max(held.first, state.log_held_from)
                spans.append((who, first, end, owners))
        for who, first, last, ranges in spans:
            try:
                for _, key in log_keys(state.log_protocol, ranges, first, last):
                    if key not in present:
                        wanted.setdefault(key, who)
            except CorruptionError as error:
                findings.append(Finding(REGISTER if who == "the head" else who, None, str(error)))
        return wanted, findings

    def _end(self, present: frozenset[str]) -> tuple[int, tuple[tuple[int, int], ...]]:
        """The last position that must be there, and the epochs that own positions. The manifest names some that were
        there."""
        state = self._state
        if state.log_protocol == "epoch_prefixed":
            register = EMPTY if self._register is None else self._register
            return register.last_written, register.owners
        positions = sorted(
            name.position
            for key in present
            if (name := log_name(state.log_protocol, key)) is not None and name.position >= state.log_start
        )
        lowest_missing = state.log_start
        for position in positions:
            lowest_missing += position == lowest_missing
        if positions and positions[-1] >= lowest_missing + state.fence_width:  # see `contiguous_run`
            lowest_missing = positions[-1] - state.fence_width + 1
        return max(lowest_missing - 1, state.log_last_seen), ()

    def order(self, objects: Sequence[CheckedObject]) -> list[Finding]:
        """What is wrong between objects: sequence numbers and epochs. ``objects`` in the order of positions."""
        seen = [
            (logged, Seen(logged.name, logged.header.writer_epoch, logged.header.kind))
            for logged in objects
            if logged.header is not None
        ]
        judged = zip(seen, classify(self._state, self._register, [two for _, two in seen]), strict=True)
        valid = [
            logged for (logged, _), status in judged if status is LogObjectStatus.VALID and logged.seqs is not None
        ]
        findings = [
            Finding(later.info.key, None, f"its rows do not come after those of {earlier.info.key}")
            for earlier, later in pairwise(valid)
            if earlier.seqs is not None and later.seqs is not None and later.seqs[0] <= earlier.seqs[1]
        ]
        newest = self._state.writer_epoch
        return findings + [
            Finding(logged.info.key, None, f"is of writer epoch {two.epoch}, and the manifest knows of {newest}")
            for logged, two in seen
            if two.epoch > newest
        ]

    def register(self, objects: Sequence[CheckedObject]) -> list[Finding]:
        """What of the register contradicts the manifest, or the log: ``objects``."""
        state, register = self._state, self._register
        if state.log_protocol == "contiguous":
            return []
        if register is None:
            if state.log_start > 1 or objects:
                return [Finding(REGISTER, None, "is missing, though there is a log")]
            return []
        wrong: list[str] = []
        if register.epoch > state.writer_epoch:
            wrong.append(f"is of epoch {register.epoch}, and the manifest knows of {state.writer_epoch}")
        if register.epoch == state.writer_epoch and register.token not in ("", state.writer_token):
            wrong.append(f"another writer than the manifest names holds epoch {register.epoch}")
        for earlier, later in pairwise(register.ranges):
            if earlier.last_known_sst is None or earlier.last_known_sst >= later.starting_sst:
                wrong.append(f"epoch {earlier.epoch} ends at {earlier.last_known_sst}, where epoch {later.epoch} is")
        return [Finding(REGISTER, None, what) for what in wrong]
