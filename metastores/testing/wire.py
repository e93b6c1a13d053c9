"""What networks do to conditional writes, and the wrappers that put it between a metastore and what is below it.

Invariant: a `Wire` only decides when a write takes effect (now, later, never, twice) and what its sender hears of it;
the effect itself is that of the store or metastore behind. Fates listed in `Wire.next` come first, in order; after
them chance decides by `Faults`, or nothing happens.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from metastores.protocol import (
    CasOutcome,
    Cell,
    CommitOutcome,
    ConditionalObjects,
    ListedObject,
    MetaStore,
    Record,
    Register,
    StoredObject,
    Unknown,
    VersionRef,
)

T = TypeVar("T")


class LostError(ConnectionError):
    """No answer came. The request may have run or may run later."""

    outcome = "unknown"


class Fate(Enum):
    """What becomes of one conditional write."""

    PASS = auto()
    LOST_ANSWER = auto()
    LOST_REQUEST = auto()
    LATE = auto()
    """No answer; it takes effect when `Wire.deliver` is called."""
    RESENT = auto()
    """A layer below sends it twice and answers with the second answer."""
    ASLEEP_BEFORE = auto()
    """The sender's process stops before the write is sent, until `Wire.wake`."""
    ASLEEP_AFTER = auto()
    """The sender's process stops after its effect, before it hears the answer, until `Wire.wake`."""


@dataclass(slots=True)
class Faults:
    """Chances, from 0 to 1, of what happens to one conditional write."""

    lost_answer: float = 0.08
    lost_request: float = 0.06
    late: float = 0.10
    resent: float = 0.05


class Wire:
    """The way of one handle's conditional writes."""

    faults: Faults | None
    """Chances of the writes that `next` says nothing of; without them these pass."""
    next: list[Fate]
    """What becomes of the next writes, in their order."""
    late: list[Callable[[], Awaitable[object]]]
    """Writes that `deliver` will carry out."""
    asleep: asyncio.Event
    """Set once a sender's process has stopped."""
    wake: asyncio.Event
    """Set it, and a sender's process that has stopped goes on."""

    def __init__(self, rng: random.Random | None = None, faults: Faults | None = None) -> None:
        self._rng = random.Random(0) if rng is None else rng
        self.faults = faults
        self.next = []
        self.late = []
        self.asleep = asyncio.Event()
        self.wake = asyncio.Event()

    async def carry(self, send: Callable[[], Awaitable[T]]) -> T:
        """Perform one write, or not. Raises `LostError` when no answer comes."""
        fate = self.next.pop(0) if self.next else self._by_chance()
        if fate is Fate.LOST_REQUEST:
            raise LostError("the request was lost")
        if fate is Fate.LATE:
            self.late.append(send)
            raise LostError("no answer in time")
        if fate is Fate.ASLEEP_BEFORE:
            await self._sleep()
        answer = await send()
        if fate is Fate.LOST_ANSWER:
            raise LostError("the answer was lost")
        if fate is Fate.RESENT:
            return await send()
        if fate is Fate.ASLEEP_AFTER:
            await self._sleep()
        return answer

    async def deliver(self) -> None:
        """Let one late request, any of them, take effect; nobody hears its answer."""
        if self.late:
            await self.late.pop(self._rng.randrange(len(self.late)))()

    async def _sleep(self) -> None:
        self.asleep.set()
        await self.wake.wait()

    def _by_chance(self) -> Fate:
        faults = self.faults
        if faults is None:
            return Fate.PASS
        chance = self._rng.random()
        for probability, fate in (
            (faults.lost_answer, Fate.LOST_ANSWER),
            (faults.lost_request, Fate.LOST_REQUEST),
            (faults.late, Fate.LATE),
            (faults.resent, Fate.RESENT),
        ):
            if (chance := chance - probability) < 0:
                return fate
        return Fate.PASS


class WiredObjects:
    """`ConditionalObjects` over ``objects``, whose conditional writes go over ``wire``.

    ``turn`` is awaited before each effect (a scheduler's chance to run others)."""

    wire: Wire
    """As it was given."""

    def __init__(
        self, objects: ConditionalObjects, wire: Wire, *, turn: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._objects = objects
        self._turn = turn
        self.wire = wire

    async def _wait(self) -> None:
        if self._turn is not None:
            await self._turn()

    async def get(self, key: str) -> StoredObject | None:
        """See `ConditionalObjects`."""
        await self._wait()
        return await self._objects.get(key)

    async def put(self, key: str, data: bytes) -> str:
        """See `ConditionalObjects`."""
        await self._wait()
        return await self._objects.put(key, data)

    async def create(self, key: str, data: bytes) -> str | None:
        """See `ConditionalObjects`."""
        await self._wait()
        return await self.wire.carry(lambda: self._objects.create(key, data))

    async def replace(self, key: str, data: bytes, etag: str) -> str | None:
        """See `ConditionalObjects`."""
        await self._wait()
        return await self.wire.carry(lambda: self._objects.replace(key, data, etag))

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ListedObject]:
        """See `ConditionalObjects`."""
        await self._wait()
        async for listed in self._objects.list(prefix, start_after):
            yield listed

    async def delete(self, keys: Sequence[str]) -> None:
        """See `ConditionalObjects`; other tasks may run between two keys."""
        for key in keys:
            await self._wait()
            await self._objects.delete([key])


class WiredMetaStore:
    """`MetaStore` over ``store``, a server that judges commits itself: whole commits go over ``wire``."""

    def __init__(self, store: MetaStore, wire: Wire) -> None:
        self._store = store
        self._wire = wire

    async def latest(self) -> Record | None:
        """See `MetaStore`."""
        return await self._store.latest()

    async def read(self, ref: VersionRef) -> Record | None:
        """See `MetaStore`."""
        return await self._store.read(ref)

    async def commit(self, ref: VersionRef, payload: bytes) -> CommitOutcome:
        """See `MetaStore`."""
        try:
            return await self._wire.carry(once(lambda: self._store.commit(ref, payload)))
        except LostError as error:
            return Unknown(str(error))

    async def versions(self) -> list[VersionRef]:
        """See `MetaStore`."""
        return await self._store.versions()

    async def delete(self, refs: Sequence[VersionRef]) -> None:
        """See `MetaStore`."""
        await self._store.delete(refs)

    async def collect(
        self,
        retained: Sequence[VersionRef],
        *,
        as_of: VersionRef | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """See `MetaStore`."""
        return await self._store.collect(retained, as_of=as_of, limit=limit, dry_run=dry_run)

    async def close(self) -> None:
        """See `MetaStore`."""
        await self._store.close()


class WiredRegister:
    """`Register` over ``register``, a server that judges writes itself: whole writes go over ``wire``."""

    def __init__(self, register: Register, wire: Wire) -> None:
        self._register = register
        self._wire = wire

    async def read(self) -> Cell | None:
        """See `Register`."""
        return await self._register.read()

    async def compare_and_set(self, expected_tag: str | None, value: bytes) -> CasOutcome:
        """See `Register`."""
        try:
            return await self._wire.carry(once(lambda: self._register.compare_and_set(expected_tag, value)))
        except LostError as error:
            return Unknown(str(error))

    async def close(self) -> None:
        """See `Register`."""
        await self._register.close()


def once(send: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    """``send``, but a second call only repeats the first answer: a whole call of a metastore is never resent."""
    answers: list[T] = []

    async def send_once() -> T:
        if not answers:
            answers.append(await send())
        return answers[0]

    return send_once
