"""A log laid out by hand: objects of any epoch at any id, and a store, a head and a clock that follow a script.

Nothing here waits: a task that sleeps on the clock turns it.
"""

from __future__ import annotations

import asyncio
import bisect
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from metastores.memory import MemoryRegister
from metastores.protocol import CasOutcome, Cell, VersionRef
from slate_async.errors import UnavailableError
from slate_async.objectstore.memory import MemoryObjects, MemoryStore
from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectInfo, PutMode
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.system import SystemIds
from slate_async.storage.format.log_segment import decode_segment, encode_fence, encode_segment
from slate_async.storage.log.contiguous import ContiguousLog
from slate_async.storage.log.epoch_prefixed import EpochPrefixedLog
from slate_async.storage.log.names import contiguous_key, epoch_key
from slate_async.storage.log.protocol import Inherited, Log, LogObject
from slate_async.storage.log.reader import LogReader
from slate_async.storage.log.register import WriterRegister, decode, encode
from slate_async.storage.manifest.state import LogProtocol, ManifestState
from slate_async.types import Buffer
from tests.engine import START_MS, InlineOffload
from tests.support.rows import DATABASE, R, columns_of

DEADLINE_MS = 5_000
POLL_MS = 1_000


class TurnedClock:
    """Time that passes only while somebody sleeps, and then at once."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps: list[float] = []

    def now_ms(self) -> int:
        return START_MS + int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@dataclass
class Step:
    """What happens to one request: ``before`` runs first; then it is carried out unless ``lost``; then ``error``."""

    before: Callable[[], object] = lambda: None
    error: Exception | None = None
    lost: bool = False


class ScriptedStore(MemoryStore):
    """A store in memory whose requests follow steps, used up one by one; ``puts`` and ``gets`` are written down."""

    def __init__(self, clock: TurnedClock, objects: MemoryObjects) -> None:
        super().__init__(clock, objects)
        self.steps: dict[tuple[str, str], list[Step]] = {}
        self.puts: list[str] = []
        self.gets: list[str] = []
        self.lists = 0

    def script(self, operation: str, key: str, *steps: Step) -> None:
        self.steps.setdefault((operation, key), []).extend(steps)

    def _next(self, operation: str, key: str) -> Step:
        waiting = self.steps.get((operation, key))
        step = waiting.pop(0) if waiting else Step()
        step.before()
        if step.lost:
            raise step.error or unavailable()
        return step

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        self.puts.append(key)
        step = self._next("put", key)
        etag = await super().put(key, data, mode=mode, metadata=metadata)
        if step.error is not None:
            raise step.error
        return etag

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        self.gets.append(key)
        step = self._next("get", key)
        if step.error is not None:
            raise step.error
        return await super().get(key, byte_range)

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self.lists += 1
        step = self._next("list", prefix)
        if step.error is not None:
            raise step.error
        async for info in super().list(prefix, start_after=start_after):
            yield info


def unavailable() -> UnavailableError:
    return UnavailableError("the store does not answer", outcome="unknown")


@dataclass
class CasStep:
    """What happens to one compare-and-set: as `Step`; ``answer`` is given in place of the real one."""

    before: Callable[[], object] = lambda: None
    answer: CasOutcome | None = None
    error: Exception | None = None
    lost: bool = False


class ScriptedRegister(MemoryRegister):
    """A register whose compare-and-sets follow steps."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[CasStep] = []
        self.attempts = 0

    def holds(self) -> WriterRegister | None:
        return None if self._cell is None else decode(self._cell.value)

    def place(self, value: WriterRegister | None) -> None:
        """Write past every condition, as another process would have."""
        self._writes += 1
        self._cell = None if value is None else Cell(encode(value), str(self._writes))

    async def compare_and_set(self, expected_tag: str | None, value: bytes) -> CasOutcome:
        self.attempts += 1
        step = self.steps.pop(0) if self.steps else CasStep()
        step.before()
        if step.error is not None and step.lost:
            raise step.error
        real = None if step.lost else await super().compare_and_set(expected_tag, value)
        if step.error is not None:
            raise step.error
        answer = step.answer if step.answer is not None else real
        assert answer is not None
        return answer


@dataclass
class Shelf:
    """The objects, the head and the register of one database, and logs over them.

    head_steps: called one by one before the head is read
    """

    protocol: LogProtocol = "contiguous"
    clock: TurnedClock = field(default_factory=TurnedClock)
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    register: ScriptedRegister = field(default_factory=ScriptedRegister)
    head_steps: list[Callable[[], object]] = field(default_factory=list)
    head_reads: int = 0
    store: ScriptedStore = field(init=False)
    head: ManifestState | None = field(init=False)

    def __post_init__(self) -> None:
        self.store = ScriptedStore(self.clock, self.objects)
        self.head = None

    # ---- laying out

    def key(self, epoch: int, log_id: int) -> str:
        return contiguous_key(log_id) if self.protocol == "contiguous" else epoch_key(epoch, log_id)

    def segment(self, epoch: int, log_id: int, value: bytes = b"") -> bytes:
        """The bytes of a segment of one row, whose key tells epoch and id."""
        rows = columns_of([R(b"%d.%d" % (epoch, log_id), value)])
        parts = encode_segment(rows, database_id=DATABASE, log_id=log_id, epoch=epoch, manifest_version=1)
        return b"".join(parts)

    def lay(self, *names: str) -> None:
        """Put a segment for each ``epoch.id``, a fence for each ``epoch.id|``, as other processes would have."""
        for name in names:
            epoch, log_id = map(int, name.rstrip("|").split("."))
            data = self.segment(epoch, log_id)
            if name.endswith("|"):
                data = encode_fence(database_id=DATABASE, log_id=log_id, epoch=epoch, manifest_version=1)
            self.put(self.key(epoch, log_id), data)

    def put(self, key: str, data: bytes) -> None:
        self.objects.writes += 1
        if key not in self.objects.objects:
            bisect.insort(self.objects.sorted_keys, key)
        info = ObjectInfo(key, len(data), f'"{self.objects.writes}"', START_MS)
        self.objects.objects[key] = (info, data)

    def remove(self, *names: str) -> None:
        for name in names:
            epoch, log_id = map(int, name.split("."))
            key = self.key(epoch, log_id)
            del self.objects.objects[key]
            self.objects.sorted_keys.remove(key)

    def stored(self, log_id: int, epoch: int = 0) -> bytes:
        """The bytes at an id."""
        return self.objects.objects[self.key(epoch, log_id)][1]

    # ---- the manifest

    def claim(self, epoch: int, **fields: object) -> ManifestState:
        """The head as a claim of ``epoch`` left it."""
        self.head = ManifestState(
            database_id=DATABASE,
            log_protocol=self.protocol,
            wal_enabled=True,
            created_ms=START_MS,
            ref=VersionRef(epoch + 1, "a" * 32),
            writer_epoch=epoch,
            writer_token=f"token of epoch {epoch}",
            **fields,  # type: ignore[arg-type]
        )
        return self.head

    def commit(self, **fields: object) -> None:
        """One more version of the head."""
        assert self.head is not None
        ref = VersionRef(self.head.version + 1, "b" * 32)
        self.head = replace(self.head, ref=ref, **fields)  # type: ignore[arg-type]

    async def load_head(self) -> ManifestState | None:
        self.head_reads += 1
        if self.head_steps:
            self.head_steps.pop(0)()
        await asyncio.sleep(0)
        return self.head

    # ---- logs

    @property
    def runtime(self) -> Runtime:
        return Runtime(self.clock, random.Random(7), SystemIds(), InlineOffload(), InlineOffload())

    def contiguous(self) -> ContiguousLog:
        return ContiguousLog(
            self.store,
            LogReader(self.store, DATABASE, whole=True),
            self.load_head,
            self.runtime,
            deadline_ms=DEADLINE_MS,
            takeover_deadline_ms=2 * DEADLINE_MS,
            poll_interval_ms=POLL_MS,
        )

    def epoch_prefixed(self, gap_wait_ms: int = 0) -> EpochPrefixedLog:
        return EpochPrefixedLog(
            self.store,
            LogReader(self.store, DATABASE, whole=True),
            self.register,
            self.load_head,
            self.runtime,
            deadline_ms=DEADLINE_MS,
            takeover_deadline_ms=2 * DEADLINE_MS,
            gap_wait_ms=gap_wait_ms,
        )


def names_of(inherited: Inherited) -> list[str]:
    """``epoch.id`` of each inherited object, its bytes checked to be of that very epoch and id."""
    names = []
    for recovered in inherited.objects:
        _, columns = decode_segment(
            recovered.data, object_name=recovered.key, database_id=DATABASE, log_id=recovered.id
        )
        name = f"{recovered.header.writer_epoch}.{recovered.id}"
        assert columns.keys.to_pylist() == [name.encode()]
        names.append(name)
    return names


class Taken:
    """A replay that keeps what it is given."""

    def __init__(self) -> None:
        self.objects: list[LogObject] = []

    def begin(self, state: ManifestState) -> None:
        self.objects = []

    async def add(self, logged: LogObject) -> None:
        self.objects.append(logged)

    async def drain(self) -> None:
        pass


async def taken_over(log: Log, claimed: ManifestState) -> Inherited:
    """What ``log`` takes over, with the bytes that it gave to its replay."""
    replay = Taken()
    inherited = await log.take_over(claimed, replay)
    assert [replace(recovered, data=b"") for recovered in replay.objects] == list(inherited.objects)
    return replace(inherited, objects=tuple(replay.objects))
