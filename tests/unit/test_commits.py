"""The commit loop: every answer but `Committed` leads back to the head, and an edit goes in exactly once."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace

import pytest

from metastores.protocol import Committed, Conflict, Unknown
from slate_async import commits
from slate_async.commits import CommitLoop, WriteOutcome
from slate_async.errors import ClosedError, ConflictError, FencedError, InternalError, NotFoundError, UnavailableError
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import system_runtime


@dataclass(frozen=True)
class Shelf:
    """A state: its version, and what was put there in order; ``owner`` may take it over."""

    version: int = 0
    items: tuple[str, ...] = ()
    owner: str = "first"


@dataclass(frozen=True)
class Put:
    """Put ``item`` on the shelf, once; only behind ``after``, and only as its ``owner``."""

    item: str
    after: str | None = None
    owner: str = "first"

    def apply(self, state: Shelf) -> Shelf | None:
        if state.owner != self.owner:
            raise FencedError(f"{state.owner} took over")
        if self.item in state.items:
            return None
        if self.after is not None and self.after not in state.items:
            raise ConflictError(f"{self.after} is not there")
        return replace(state, items=(*state.items, self.item))


@dataclass(frozen=True)
class TakeOver:
    owner: str

    def apply(self, state: Shelf) -> Shelf | None:
        return None if state.owner == self.owner else replace(state, owner=self.owner)


class Store:
    """The committed head that all `Shelves` of a test share."""

    def __init__(self, head: Shelf | None = None) -> None:
        self.head = head


class Shelves:
    """`Versions` over a `Store` that follow a script of moods, one per write, then behave."""

    def __init__(self, store: Store, *moods: str) -> None:
        self.store = store
        self.moods = list(moods)
        self.head: Shelf | None = None
        self.loads = self.writes = 0
        self.silent_reads = 0

    async def load(self) -> Shelf | None:
        self.loads += 1
        await asyncio.sleep(0)
        if self.silent_reads:
            self.silent_reads -= 1
            raise UnavailableError("no answer to a read")
        self.head = self.store.head
        return self.head

    async def write(self, old: Shelf | None, new: Shelf) -> WriteOutcome[Shelf]:
        self.writes += 1
        mood = self.moods.pop(0) if self.moods else "well"
        await asyncio.sleep(0)
        if mood == "silent":
            await asyncio.Event().wait()
        if mood == "refused":
            raise UnavailableError("slow down", outcome="not_applied")
        if mood == "lost request":
            return Unknown("no answer")
        if mood == "raced" or self.store.head != old:
            return Conflict(self.store.head)
        self.head = self.store.head = replace(new, version=new.version + 1)
        return Unknown("no answer") if mood == "lost answer" else Committed(self.head)


def loop_of(
    shelves: Shelves, *, runtime: Runtime | None = None, supervisor: Supervisor | None = None, deadline_ms: int = 5_000
) -> CommitLoop[Shelf]:
    def failed(cause: BaseException) -> None:
        pytest.fail(f"a task failed: {cause!r}")

    return CommitLoop(
        shelves,
        system_runtime(1) if runtime is None else runtime,
        Supervisor("test", failed) if supervisor is None else supervisor,
        what="shelf",
        missing="there is no shelf",
        deadline_ms=deadline_ms,
    )


def counts(loop: CommitLoop[Shelf]) -> tuple[int, int, int]:
    return loop.stats.commits, loop.stats.conflicts, loop.stats.unknowns


MOODS = {
    "well": (1, 0, 0),
    "raced": (1, 1, 0),
    "refused": (1, 0, 0),
    "lost request": (1, 0, 1),
    "lost answer": (0, 0, 1),  # the edit's mark decided, not an answer
}


@pytest.mark.parametrize("mood", MOODS)
async def test_an_edit_goes_in_exactly_once_whatever_the_outcome(mood: str) -> None:
    store = Store(Shelf(1, ("a",)))
    loop = loop_of(Shelves(store, mood))
    assert await loop.commit(Put("b")) == store.head == Shelf(2, ("a", "b"))
    assert counts(loop) == MOODS[mood]


@pytest.mark.parametrize("mood", MOODS)
async def test_the_first_version_is_created_once_whatever_the_outcome(mood: str) -> None:
    store = Store()
    assert await loop_of(Shelves(store, mood)).create(Shelf(items=("a",))) == store.head == Shelf(1, ("a",))
    again = Shelves(store)
    assert await loop_of(again).create(Shelf(items=("other",))) == Shelf(1, ("a",))
    assert again.writes == 0


async def test_racing_loops_lose_nothing() -> None:
    store = Store(Shelf(1))
    loops = [loop_of(Shelves(store)) for _ in range(8)]
    await asyncio.gather(*(loop.commit(Put(f"{n}/{at}")) for n, loop in enumerate(loops) for at in range(4)))
    assert store.head is not None
    assert sorted(store.head.items) == sorted(f"{n}/{at}" for n in range(8) for at in range(4))
    assert store.head.version == 33
    assert sum(loop.stats.commits for loop in loops) == 32
    assert sum(loop.stats.conflicts for loop in loops) > 0


async def test_commits_of_one_loop_do_not_race_each_other() -> None:
    shelves = Shelves(Store(Shelf(1)))
    loop = loop_of(shelves)
    await asyncio.gather(*(loop.commit(Put(str(n))) for n in range(20)))
    assert (counts(loop), shelves.loads) == ((20, 0, 0), 1)


async def test_the_known_head_saves_a_read_and_a_stale_one_costs_a_conflict() -> None:
    store = Store(Shelf(1))
    mine, other = Shelves(store), Shelves(store)
    loop = loop_of(mine)
    await loop.commit(Put("a"))
    await loop.commit(Put("b"))
    assert mine.loads == 1
    await loop_of(other).commit(Put("c"))
    assert (await loop.commit(Put("d"))).items == ("a", "b", "c", "d")
    assert (mine.loads, counts(loop)) == (2, (3, 1, 0))


async def test_an_edit_refused_on_a_stale_head_is_judged_again_on_the_real_one() -> None:
    store = Store(Shelf(1))
    mine = Shelves(store)
    loop = loop_of(mine)
    await mine.load()
    await loop_of(Shelves(store)).commit(Put("a"))
    assert (await loop.commit(Put("b", after="a"))).items == ("a", "b")
    with pytest.raises(ConflictError, match="z is not there"):
        await loop.commit(Put("c", after="z"))
    assert store.head == Shelf(3, ("a", "b"))


async def test_an_edit_that_is_in_already_is_answered_with_the_head() -> None:
    store = Store(Shelf(1))
    mine = Shelves(store)
    loop = loop_of(mine)
    await loop.commit(Put("a"))
    newest = await loop_of(Shelves(store)).commit(Put("b"))
    assert mine.head != newest
    assert await loop.commit(Put("a")) == newest
    assert counts(loop) == (1, 0, 0)


async def test_a_fenced_edit_is_refused_on_the_head_it_knows() -> None:
    store = Store(Shelf(1))
    mine = Shelves(store)
    loop = loop_of(mine)
    await loop.commit(TakeOver("second"))
    loads = mine.loads
    with pytest.raises(FencedError):
        await loop.commit(Put("a"))
    assert mine.loads == loads


async def test_an_edit_that_was_in_before_its_role_was_taken_over_is_not_taken_for_a_success() -> None:
    """Its answer was lost and another owner came: what the loop can say is that the role was taken over."""

    class Superseded(Shelves):
        async def write(self, old: Shelf | None, new: Shelf) -> WriteOutcome[Shelf]:
            outcome = await super().write(old, new)
            assert self.store.head is not None
            self.store.head = replace(self.store.head, version=self.store.head.version + 1, owner="second")
            return outcome

    with pytest.raises(FencedError):
        await loop_of(Superseded(Store(Shelf(1)), "lost answer")).commit(Put("a"))


async def test_without_a_head_there_is_nothing_to_commit_to() -> None:
    with pytest.raises(NotFoundError, match="there is no shelf"):
        await loop_of(Shelves(Store())).commit(Put("a"))


async def test_a_read_without_an_answer_is_repeated() -> None:
    shelves = Shelves(Store(Shelf(1)))
    shelves.silent_reads = 3
    assert (await loop_of(shelves).commit(Put("a"))).items == ("a",)
    shelves.silent_reads = 2
    assert (await loop_of(shelves).create(Shelf())).items == ("a",)


async def test_what_is_no_outage_is_raised_at_once() -> None:
    class Broken(Shelves):
        async def write(self, old: Shelf | None, new: Shelf) -> WriteOutcome[Shelf]:
            self.writes += 1
            raise InternalError("not a successor")

    broken = Broken(Store(Shelf(1)))
    with pytest.raises(InternalError):
        await loop_of(broken).commit(Put("a"))
    assert broken.writes == 1


async def test_past_the_deadline_the_outcome_is_unknown_and_the_cause_is_named() -> None:
    shelves = Shelves(Store(Shelf(1)), *["lost request"] * 10_000)
    with pytest.raises(
        UnavailableError, match="a commit to the shelf was not confirmed within 100 ms, and may be in: no answer"
    ) as caught:
        await loop_of(shelves, deadline_ms=100).commit(Put("a"))
    assert caught.value.outcome == "unknown"


async def test_past_the_deadline_nothing_is_in_if_nothing_was_written() -> None:
    """As on a full disk."""
    shelves = Shelves(Store(Shelf(1)), *["refused"] * 10_000)
    with pytest.raises(
        UnavailableError, match="a commit to the shelf was not made within 100 ms, and is not in: slow down"
    ) as caught:
        await loop_of(shelves, deadline_ms=100).commit(Put("a"))
    assert caught.value.outcome == "not_applied"
    shelves = Shelves(Store(None), *["refused"] * 10_000)
    with pytest.raises(UnavailableError, match="is not in") as caught:
        await loop_of(shelves, deadline_ms=100).create(Shelf(1))
    assert caught.value.outcome == "not_applied"


@pytest.mark.parametrize("mood", ["raced", "refused"])
async def test_one_write_without_an_answer_may_be_in_whatever_follows(mood: str) -> None:
    shelves = Shelves(Store(Shelf(1)), "raced", "lost request", *[mood] * 10_000)
    with pytest.raises(UnavailableError, match="may be in") as caught:
        await loop_of(shelves, deadline_ms=100).commit(Put("a"))
    assert caught.value.outcome == "unknown"


async def test_the_deadline_holds_though_a_write_is_never_answered() -> None:
    async with asyncio.timeout(20):
        with pytest.raises(UnavailableError) as caught:
            await loop_of(Shelves(Store(Shelf(1)), "silent"), deadline_ms=30).commit(Put("a"))
    assert caught.value.outcome == "unknown"


async def test_a_commit_whose_turn_does_not_come_was_not_applied() -> None:
    store = Store(Shelf(1))
    loop = loop_of(Shelves(store, "silent"), deadline_ms=10_000)
    first = asyncio.create_task(loop.commit(Put("a")))
    await asyncio.sleep(0.01)
    loop.deadline_ms = 30
    for waiting in (loop.commit(Put("b")), loop.create(Shelf())):
        with pytest.raises(UnavailableError, match="waited for 30 ms") as caught:
            await waiting
        assert caught.value.outcome == "not_applied"
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert store.head == Shelf(1)


class Still:
    """A clock that stands still; sleeping takes nothing."""

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Raced(Shelves):
    """Every write loses."""

    async def write(self, old: Shelf | None, new: Shelf) -> WriteOutcome[Shelf]:
        self.writes += 1
        return Conflict(None)


async def test_tries_are_bounded_though_the_clock_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "MAX_ATTEMPTS", 20)
    runtime = replace(system_runtime(1), clock=Still())
    shelves = Raced(Store(Shelf(1)))
    with pytest.raises(UnavailableError, match="a commit to the shelf lost against other commits 20 times") as caught:
        await loop_of(shelves, runtime=runtime).commit(Put("a"))
    assert (caught.value.outcome, shelves.writes) == ("not_applied", 20)
    shelves = Raced(Store())
    with pytest.raises(UnavailableError, match="creating the shelf failed 20 times") as caught:
        await loop_of(shelves, runtime=runtime).create(Shelf())
    assert (caught.value.outcome, shelves.writes) == ("not_applied", 20)


class Slow:
    """A clock on which every look at it takes a second, and sleeping nothing; ``slept``: the sleeps asked for."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._looks = 0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        self._looks += 1
        return float(self._looks)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Longest(random.Random):
    """Draws the upper bound."""

    def uniform(self, a: float, b: float) -> float:
        return b


async def pauses(mood: str) -> list[float]:
    """Of an edit whose first six tries end in ``mood``."""
    clock = Slow()
    runtime = replace(system_runtime(1), clock=clock, rng=Longest())
    await loop_of(Shelves(Store(Shelf(1)), *[mood] * 6), runtime=runtime, deadline_ms=100_000).commit(Put("a"))
    return clock.slept


async def test_after_many_lost_races_the_pause_is_shorter_than_a_newcomers() -> None:
    assert await pauses("raced") == [2.0 / losses for losses in range(1, 6)]


@pytest.mark.parametrize("mood", ["refused", "lost request"])
async def test_without_an_answer_each_pause_is_longer(mood: str) -> None:
    assert await pauses(mood) == [0.01 * 2**tries for tries in range(1, 6)]


async def test_a_cancelled_caller_abandons_the_wait_not_the_commit() -> None:
    store = Store(Shelf(1))
    loop = loop_of(Shelves(store, "raced"))
    task = asyncio.create_task(loop.commit(Put("a")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await loop.commit(Put("b"))).items == ("a", "b")  # it waits for the one before it


async def test_closing_the_owner_ends_a_commit_with_an_unknown_outcome() -> None:
    supervisor = Supervisor("test", lambda cause: pytest.fail(f"a task failed: {cause!r}"))
    loop = loop_of(Shelves(Store(Shelf(1)), "silent"), supervisor=supervisor)
    task = asyncio.create_task(loop.commit(Put("a")))
    await asyncio.sleep(0.01)
    await supervisor.close()
    with pytest.raises(ClosedError) as caught:
        await task
    assert caught.value.outcome == "unknown"
    with pytest.raises(ClosedError) as caught:
        await loop.commit(Put("b"))
    assert caught.value.outcome == "not_applied"
