"""The store of one collection, the network before it, and the processes that use it: all in one seeded loop.

Roles are generators; each ``yield`` is one remote operation. A write may be applied with its answer lost, not at all,
LATE, or TWICE (the second time late). Processes sleep between any two operations, freeze, and crash. The sequence of
versions is taken as the contract of metastores, which has scenarios of its own.

What roles decide is the product's (`slate_async.collections.core`); what is here performs it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, TypeAlias, TypeVar

from slate_async.collections.core import names
from slate_async.collections.core.area import Area, check_successor
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.holding import StoredHold
from slate_async.collections.core.times import Time, TimeKind, less_equal
from tests.simulation.checkers import Violation

T = TypeVar("T")
Update: TypeAlias = tuple[int, Time, int]
"""Data, time, diff."""
Updates: TypeAlias = tuple[Update, ...]
Appends = Literal["definite", "compare"]
Mood = Literal["mixed", "clones", "listen", "names", "walk", "register", "commit", "lease", "deleted"]
"""What happens more often."""
HASTY: tuple[Mood, ...] = ("clones", "lease", "listen", "names", "register", "walk")
"""Moods in which controllers hardly rest."""
MOODS: tuple[Mood, ...] = ("mixed", "clones", "listen", "names", "walk", "register", "commit", "lease", "deleted")
Role: TypeAlias = "Generator[Request, Any, T]"


class Unknown:
    """No answer came."""


UNKNOWN = Unknown()
TAKEN = "taken"
"""The answer to a conditional write whose condition does not hold."""


class Fault(Enum):
    """What becomes of a write."""

    NONE = "applied and answered"
    UNANSWERED = "applied, and its answer is lost"
    LOST = "not applied"
    LATE = "not answered, and applied later"
    TWICE = "applied and answered, and applied once more later"


class LeaseLost(Exception):
    """A handle was revoked, and noticed."""


@dataclass(frozen=True, slots=True)
class Request:
    """One remote operation. ``changes``: what kind of object, of a write, by which moods choose faults."""

    perform: Callable[[], Any]
    changes: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object: what is in it, and its etag."""

    value: Any
    etag: str


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A pending batch, as it was written."""

    lower: Frontier
    upper: Frontier
    token: str
    updates: Updates


class Process:
    """Ends at a crash; then its ``role`` begins anew."""

    def __init__(self, role: Callable[[Process], Role[None]]) -> None:
        self.role = role
        self.eager = False
        self.frozen_until = 0


@dataclass(slots=True)
class Task:
    """A generator of a process, and what it is sent next."""

    role: Role[None]
    process: Process
    asleep_until: int = 0
    answer: Any = None


@dataclass(slots=True)
class Stage:
    """See the module docstring.

    truth: all updates there are; for ``compare`` appends, what the first one at the end of the chain brought
    """

    rng: random.Random
    appends: Appends
    kind: TimeKind
    mood: Mood
    objects: dict[str, Stored] = field(default_factory=dict)
    versions: dict[int, Area] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    late: list[Request] = field(default_factory=list)
    now: int = 0
    count: int = 0
    faults: bool = True
    stats: Counter[str] = field(default_factory=Counter)
    truth: list[Update] = field(default_factory=list)
    chain: list[tuple[Frontier, Frontier, str]] = field(default_factory=list)
    acknowledged: list[tuple[Frontier, Frontier, str]] = field(default_factory=list)
    head: Area = field(init=False)
    edge: int = field(init=False)
    lease: int = field(init=False)
    lands: float = field(init=False)

    def __post_init__(self) -> None:
        rng = self.rng
        self.edge = 12 if self.kind is TimeKind.U64 else 5
        self.head = Area.first(self.minimum)
        self.versions[0] = self.head
        if self.appends == "definite":
            self.truth = [(rng.randint(0, 2), self.point(), rng.choice((-1, 1, 2))) for _ in range(rng.randint(8, 24))]
        self.lease = rng.choice(_LEASES.get(self.mood, (60, 120, 300)))
        self.lands = 0.004 if self.mood == "lease" else rng.choice((0.03, 0.03, 0.006))

    # ---- chance and names

    @property
    def minimum(self) -> Frontier:
        """Where times begin."""
        return Frontier.minimum(self.kind)

    def point(self) -> Time:
        """Any time."""
        return tuple(self.rng.randrange(self.edge) for _ in range(self.kind.coordinates))

    def token(self) -> str:
        """A name nobody else has."""
        self.count += 1
        return f"{self.count:032x}"

    def nap(self, mood: Mood, most: int) -> Role[None]:
        """In such a mood, half the time, up to ``most`` steps in which others go on."""
        if self.mood == mood and self.rng.random() < 0.5:
            yield from self.idle(self.rng.randrange(most))

    def idle(self, steps: int) -> Role[None]:
        """So many steps in which others go on."""
        for _ in range(steps):
            yield Request(lambda: None)

    # ---- remote operations

    def read_head(self) -> Request:
        """The newest version."""
        return Request(lambda: self.head)

    def read_version(self, version: int) -> Request:
        """That version, or ``None``."""
        return Request(lambda: self.versions.get(version))

    def list(self, prefix: str) -> Request:
        """Names that begin so."""
        return Request(lambda: [name for name in self.objects if name.startswith(prefix)])

    def get(self, name: str) -> Request:
        """A `Stored`, or ``None``."""
        return Request(lambda: self.objects.get(name))

    def create(self, name: str, value: Any, of: str) -> Request:
        """Put unless something is there: the etag, `TAKEN`, or `UNKNOWN`."""
        return Request(lambda: TAKEN if name in self.objects else self._put(name, value), of)

    def put(self, name: str, value: Any, of: str) -> Request:
        """Put whatever is there."""
        return Request(lambda: self._put(name, value), of)

    def match(self, name: str, etag: str, value: Any, of: str) -> Request:
        """Put if that etag is there."""

        def perform() -> str:
            stored = self.objects.get(name)
            return TAKEN if stored is None or stored.etag != etag else self._put(name, value)

        return Request(perform, of)

    def commit(self, new: Area) -> Request:
        """Make ``new`` the version after the one before it, if that is the head."""
        return Request(lambda: self._commit(new), "version")

    def delete(self, name: str) -> Request:
        """Delete, if it is there."""
        return Request(lambda: self._delete(name), "garbage")

    def delete_version(self, version: int) -> Request:
        """Delete, if it is there."""
        return Request(lambda: self.versions.pop(version, None) and None, "garbage")

    def _put(self, name: str, value: Any) -> str:
        self.objects[name] = Stored(value, self.token())
        if self.appends == "compare" and isinstance(value, PendingBatch):
            self._extend_chain(value)
        return self.objects[name].etag

    def _extend_chain(self, batch: PendingBatch) -> None:
        end = self.chain[-1][1] if self.chain else self.minimum
        if batch.lower == end:
            self.chain.append((batch.lower, batch.upper, batch.token))
            self.truth.extend(batch.updates)

    def _commit(self, new: Area) -> bool:
        if new.version != self.head.version + 1:
            return False
        check_successor(self.head, new)
        missing = [name for name in new.names() if name not in self.objects]
        if missing:
            raise Violation("dangling", f"version {new.version} names {missing[0]}, which is not there")
        self.head = self.versions[new.version] = new
        return True

    def _delete(self, name: str) -> None:
        if name in self.head.names():
            raise Violation("deleted", f"{name} was deleted, and the head names it")
        if self.objects.pop(name, None) is not None:
            self.stats["deleted"] += 1

    def hold_of(self, reader: str) -> StoredHold | None:
        """What only a checker can do: look, without an operation."""
        stored = self.objects.get(names.hold_name(reader))
        return None if stored is None else StoredHold(stored.value, stored.etag)

    # ---- running

    def start(self, role: Callable[[Process], Role[None]], frozen_for: int = 0, *, eager: bool = False) -> Process:
        """A new process."""
        process = Process(role)
        process.eager = eager
        process.frozen_until = self.now + frozen_for if frozen_for else 0
        self.spawn(role(process), process)
        return process

    def spawn(self, role: Role[None], process: Process) -> None:
        """Another task of a process."""
        self.tasks.append(Task(role, process))

    def run(self, steps: int, only: Process | None = None) -> None:
        """So many steps, or until nobody has one to take."""
        for _ in range(steps):
            self.now += 1
            if self.late and self.rng.random() < self.lands:
                self.land()
            now = self.now
            ready = [
                task
                for task in self.tasks
                if task.asleep_until <= now and task.process.frozen_until <= now and only in (None, task.process)
            ]
            if ready:
                self._step(self._chosen(ready), only is None and self.faults)
            elif only is not None or not self.tasks:
                return

    def _chosen(self, ready: list[Task]) -> Task:
        """Whose turn it is. In some moods controllers have many, so that much happens while others do little."""
        if self.mood in HASTY and self.rng.random() < 0.4:
            return self.rng.choice([task for task in ready if task.process.eager] or ready)
        return self.rng.choice(ready)

    def land(self) -> None:
        """A write that was late is applied."""
        self.late.pop(self.rng.randrange(len(self.late))).perform()

    def wake(self) -> None:
        """Nobody sleeps any more."""
        for task in self.tasks:
            task.asleep_until = task.process.frozen_until = 0

    def _step(self, task: Task, disturbed: bool) -> None:
        if not (disturbed and self._disturb(task)):
            self.step(task)

    def step(self, task: Task, fault: Fault | None = None) -> None:
        """One operation of ``task``; its fault, if it is a write, is drawn unless it is given."""
        try:
            request = task.role.send(task.answer)
        except StopIteration:
            self.tasks.remove(task)
            return
        if not (self.faults and request.changes):
            fault = Fault.NONE
        elif fault is None:
            fault = self._drawn_fault(request)
        if fault in (Fault.LATE, Fault.TWICE):
            self.late.append(request)
        applied = request.perform() if fault in (Fault.NONE, Fault.UNANSWERED, Fault.TWICE) else None
        task.answer = applied if fault in (Fault.NONE, Fault.TWICE) else UNKNOWN

    def _drawn_fault(self, request: Request) -> Fault:
        often = (request.changes, self.mood) in _TROUBLED
        chance = self.rng.random() * (0.3 if often else 1)
        return next((fault for below, fault in _CHANCES if chance < below), Fault.NONE)

    def _disturb(self, task: Task) -> bool:
        chance, process = self.rng.random(), task.process
        if chance < 0.015:
            task.asleep_until = self.now + self.rng.choice((5, 30, 120, 400))
        elif chance < 0.022:
            process.frozen_until = self.now + self.rng.choice((10, 60, 300))
        elif chance < 0.0235:
            self.tasks = [other for other in self.tasks if other.process is not process]
            self.stats["crashed"] += 1
            self.start(process.role, self.rng.choice((0, 20, 100)), eager=process.eager)
        else:
            return False
        return True

    # ---- what is right

    def contents(self, as_of: Time) -> Updates:
        """What a snapshot shows."""
        return consolidated((data, as_of, diff) for data, time, diff in self.truth if less_equal(time, as_of))


_LEASES = {"clones": (60, 120), "lease": (30, 60), "names": (30, 60)}
"""In steps of all processes."""
_CHANCES = ((0.04, Fault.UNANSWERED), (0.08, Fault.LOST), (0.14, Fault.LATE), (0.20, Fault.TWICE))
_TROUBLED = {("version", "commit"), ("garbage", "names"), ("hold", "lease"), ("hold", "register")}
"""Kinds of writes that fail often, in which mood."""


def consolidated(updates: Iterable[Update]) -> Updates:
    """One update for each data and time, without zeros."""
    sums: Counter[tuple[int, Time]] = Counter()
    for data, time, diff in updates:
        sums[data, time] += diff
    return tuple(sorted((data, time, diff) for (data, time), diff in sums.items() if diff))


def retried(request: Request, tries: int) -> Role[Any]:
    """Send an idempotent request until it is answered."""
    for _ in range(tries):
        answer = yield request
        if answer is not UNKNOWN:
            return answer
    return UNKNOWN
