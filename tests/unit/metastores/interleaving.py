"""Runs real metastore classes in one seeded interleaving, without an event loop.

Every operation of the object store below first gives up its turn, so the scheduler decides before each effect which
committer runs; effects may come late, twice or never (`metastores.testing.Wire`). Committers add unique marks to the
payload; at the end every acknowledged mark must be there, each once, and no reader may have seen an older head again.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

from metastores.errors import MetaStoreCorruptionError, MetaStoreUnavailableError
from metastores.factories import IfMatchFactory, PutIfAbsentFactory
from metastores.names import MANIFEST, Layout
from metastores.protocol import Committed, ConditionalObjects, MetaStore, VersionRef
from metastores.runtime import MetaRuntime
from metastores.testing import Faults, MemoryObjects, Wire, WiredObjects


class FoundError(AssertionError):
    """The checker saw a rule's effect missing."""


class Turn:
    """Awaiting it gives the turn back to the scheduler."""

    def __await__(self) -> Generator[None, None, None]:
        yield


@dataclass(slots=True)
class Task:
    """A committer, deleter or reader; asleep until ``wake_at``."""

    work: Coroutine[Any, Any, None]
    wake_at: int


class Run:
    """One seed. ``marks_kept``: whether committers look for their mark before they try again (rule 1)."""

    def __init__(
        self,
        seed: int,
        factory: type[PutIfAbsentFactory | IfMatchFactory],
        *,
        marks_kept: bool = True,
        layout: Layout = MANIFEST,
    ):
        self.rng = random.Random(seed)
        self.runtime = MetaRuntime(sleep=self.sleep, rng=random.Random(seed + 1))
        self.objects = MemoryObjects()
        self.factory = factory
        self.layout = layout
        self.marks_kept = marks_kept
        self.wires: list[Wire] = []
        self.acknowledged: list[str] = []
        self.marks = 0
        self.tasks: list[Task] = []

    async def turn(self) -> None:
        await Turn()

    async def sleep(self, seconds: float) -> None:
        await Turn()

    def store(self, *, calm: bool = False) -> MetaStore:
        """A handle with a wire of its own; a calm one has no faults."""
        wire = Wire(self.rng, None if calm else Faults())
        self.wires.append(wire)
        objects: ConditionalObjects = WiredObjects(self.objects, wire, turn=self.turn)
        return self.factory(self.runtime).manifest(objects, "memory://model", self.layout)

    def ref(self, version: int) -> VersionRef:
        return VersionRef(version, self.runtime.token())

    async def committer(self) -> None:
        store = self.store()
        for _ in range(self.rng.randint(2, 6)):
            self.marks += 1
            mark = f"m{self.marks}"
            while True:
                head = await store.latest()
                assert head is not None
                if self.marks_kept and mark in head.payload.decode().split():
                    break
                payload = head.payload + f" {mark}".encode()
                if isinstance(await self._give_up(store.commit(self.ref(head.ref.version + 1), payload)), Committed):
                    break
            self.acknowledged.append(mark)

    async def _give_up(self, work: Awaitable[object]) -> object:
        try:
            return await work
        except MetaStoreUnavailableError:
            return None

    async def deleter(self) -> None:
        store = self.store()
        for _ in range(40):
            head = await store.latest()
            assert head is not None
            if self.rng.random() < 0.5:
                await self._give_up(store.collect([], as_of=head.ref))
                continue
            keep = self.rng.randint(0, 2)
            versions = [VersionRef(n, "0" * 32) for n in range(max(1, head.ref.version - 6), head.ref.version - keep)]
            await self._give_up(store.delete(versions))

    async def reader(self) -> None:
        store = self.store()
        seen: list[str] = []
        for _ in range(60):
            head = await store.latest()
            marks = [] if head is None else head.payload.decode().split()
            if marks[: len(seen)] != seen:
                raise FoundError(f"a reader went from {seen} to {marks}")
            seen = marks

    def go(self) -> None:
        """Run the seed; raises `FoundError` (or the store's own `MetaStoreCorruptionError`)."""
        self.drive(self.store(calm=True).commit(self.ref(1), b"init"))
        spawn = [self.committer] * self.rng.randint(2, 4) + [self.deleter, self.reader]
        self.tasks = [Task(start(), self.rng.choice((0, 0, 50))) for start in spawn]
        try:
            self.interleave(self.rng.choice((150, 400, 900)))
        finally:
            for task in self.tasks:
                task.work.close()
        self.check()

    def interleave(self, steps: int) -> None:
        for now in range(steps):
            if self.rng.random() < 0.04:
                self.drive(self.rng.choice(self.wires).deliver())
            awake = [task for task in self.tasks if task.wake_at <= now]
            if not awake:
                if not self.tasks:
                    return
                continue
            task = self.rng.choice(awake)
            if self.rng.random() < 0.03:
                task.wake_at = now + self.rng.choice((5, 40, 200))
                continue
            try:
                task.work.send(None)
            except StopIteration:
                self.tasks.remove(task)

    def drive(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run one coroutine alone to its end."""
        try:
            while True:
                work.send(None)
        except StopIteration as done:
            return done.value

    def check(self) -> None:
        head = self.drive(self.store(calm=True).latest())
        if head is None:
            raise FoundError("the head is missing")
        final = head.payload.decode().split()
        if len(set(final)) != len(final):
            raise FoundError(f"applied twice: {final}")
        for mark in self.acknowledged:
            if mark not in final:
                raise FoundError(f"lost {mark} of {final}")


def caught(
    seeds: range,
    factory: type[PutIfAbsentFactory | IfMatchFactory],
    *,
    marks_kept: bool = True,
    layout: Layout = MANIFEST,
) -> tuple[int, str] | None:
    """The first seed at which a checker speaks, and what it says."""
    for seed in seeds:
        try:
            Run(seed, factory, marks_kept=marks_kept, layout=layout).go()
        except (FoundError, MetaStoreCorruptionError) as error:
            return seed, str(error)
    return None
