"""What every `MetaStore` must do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence

from metastores.errors import MetaStoreInvalidError
from metastores.protocol import Committed, Conflict, MetaStore, Record, Unknown, VersionRef
from metastores.runtime import MetaRuntime
from metastores.testing.racing import ATTEMPTS, breathe, mark_lists, without_an_answer
from metastores.testing.wire import Fate, Faults, Wire, WiredMetaStore


class MetaStoreSuite:
    """Subclass and implement `make_metastores`. ``racers``, ``rounds`` and ``body_sizes`` may be lowered."""

    racers = 8
    rounds = 4
    body_sizes: Sequence[int] = (10, 1_000, 100_000, 299_000, 300_001, 420_000, 2_000_000, 20_000_000)
    """Of the bodies that are stored and read again, in bytes."""

    async def make_metastores(self, count: int) -> Sequence[MetaStore]:
        """``count`` handles, as different processes would have them, on one sequence never written."""
        raise NotImplementedError

    async def make_wired_metastores(self, wires: Sequence[Wire]) -> Sequence[MetaStore]:
        """Like `make_metastores`, one handle for each wire, which its conditional writes go over.

        Override it if a commit is more than one request, so that the wire comes between them."""
        handles = await self.make_metastores(len(wires))
        return [WiredMetaStore(handle, wire) for handle, wire in zip(handles, wires, strict=True)]

    async def test_starts_empty(self) -> None:
        """Nothing was committed: no head, no versions, nothing to collect."""
        (store,) = await self.make_metastores(1)
        assert await store.latest() is None
        assert await store.versions() == []
        assert await store.collect([]) == 0
        assert await store.read(ref(1)) is None
        await store.close()

    async def test_commits_in_order(self) -> None:
        """Every version is the head after its commit, for every handle, and stays readable by its ref."""
        first, second = await self.make_metastores(2)
        refs = []
        for version in range(1, 6):
            refs.append(await commit(first if version % 2 else second, version, b"payload %d" % version))
            for handle in (first, second):
                assert await handle.latest() == Record(refs[-1], b"payload %d" % version)
        assert await second.versions() == refs
        for handle in (first, second):
            assert [await handle.read(each) for each in refs] == [
                Record(each, b"payload %d" % each.version) for each in refs
            ]

    async def test_body_sizes(self) -> None:
        """Bodies from 10 bytes to 20 MB come back whole, to the writer and to others."""
        first, second = await self.make_metastores(2)
        refs = []
        for version, size in enumerate(self.body_sizes, 1):
            payload = random.Random(size).randbytes(size)
            refs.append(await commit(first, version, payload))
            assert await second.latest() == Record(refs[-1], payload)
        for each, size in zip(refs, self.body_sizes, strict=True):
            record = await second.read(each)
            assert record is not None
            assert record.payload == random.Random(size).randbytes(size)

    async def test_wrong_version_conflicts(self) -> None:
        """Only the head's successor can be committed: no gap, no second winner, no going back."""
        first, second = await self.make_metastores(2)
        refs = [await commit(first, version, b"x") for version in (1, 2, 3)]
        for version in (5, 6, 100):
            for handle in (first, second):
                assert isinstance(await handle.commit(ref(version), b"gap"), Conflict)
        for version in (1, 2, 3):
            for handle in (first, second):
                assert isinstance(await handle.commit(ref(version), b"late"), Conflict)
        assert await second.versions() == refs
        assert await second.latest() == Record(refs[-1], b"x")

    async def test_a_losers_body_is_not_read(self) -> None:
        """A ref with a loser's token names nothing that was committed."""
        first, second = await self.make_metastores(2)
        await commit(first, 1, b"x")
        assert await second.latest() is not None
        won = await commit(first, 2, b"winner")
        lost = ref(2)
        assert isinstance(await second.commit(lost, b"loser"), Conflict)
        assert await first.read(won) == Record(won, b"winner")
        assert await second.latest() == Record(won, b"winner")
        assert await second.versions() == [ref(1, await _token(first, 1)), won]

    async def test_bad_refs_are_refused(self) -> None:
        """Version 0 and tokens of another shape are errors."""
        (store,) = await self.make_metastores(1)
        for bad in (VersionRef(0, "0" * 32), VersionRef(-1, "0" * 32), VersionRef(1, "../x"), VersionRef(1, "A" * 32)):
            await _refused(store.commit(bad, b""))

    async def test_no_commit_is_lost(self) -> None:
        """Racing committers add marks: all are in at the end, each once, in a sequence without gaps."""
        await self._race([Wire() for _ in range(self.racers)])

    async def test_no_commit_is_lost_on_bad_wires(self) -> None:
        """The same while answers and requests get lost, come late and come twice."""
        await self._race([Wire(random.Random(number), Faults()) for number in range(self.racers)])

    async def _race(self, wires: Sequence[Wire]) -> None:
        calm, *handles = await self.make_wired_metastores([Wire(), *wires])
        lists = mark_lists(self.racers, self.rounds)
        await asyncio.gather(*(self._add_marks(*each) for each in zip(handles, wires, lists, strict=True)))
        marks = [mark for each in lists for mark in each]
        head = await calm.latest()
        assert head is not None
        assert sorted(head.payload.decode().split()) == sorted(marks)
        assert head.ref.version == len(marks)
        assert [each.version for each in await calm.versions()][-5:] == [
            *range(head.ref.version - 4, head.ref.version + 1)
        ]

    async def _add_marks(self, store: MetaStore, wire: Wire, marks: Sequence[str]) -> None:
        rng = random.Random(marks[0])
        for mark in marks:
            for attempt in range(ATTEMPTS):
                await breathe(rng, attempt)
                await wire.deliver()
                head = await store.latest()
                seen = b"" if head is None else head.payload
                if mark in seen.decode().split():
                    break
                await asyncio.sleep(0)
                version = 1 if head is None else head.ref.version + 1
                if isinstance(await store.commit(ref(version), seen + f" {mark}".encode()), Committed):
                    break
            else:
                raise AssertionError(f"{mark} did not get in within {ATTEMPTS} attempts")

    async def test_a_commit_without_an_answer_is_no_conflict(self) -> None:
        """A commit that took effect although its answer was lost, or that met its own first copy, is in."""
        for fate in (Fate.LOST_ANSWER, Fate.RESENT):
            wire = Wire()
            store, other = await self.make_wired_metastores([wire, Wire()])
            await commit(store, 1, b"1")
            wire.next, wanted = [fate], ref(2)
            assert isinstance(await store.commit(wanted, b"2"), Committed | Unknown)
            for handle in (other, store):
                assert await handle.latest() == Record(wanted, b"2")
            await commit(store, 3, b"3")

    async def test_a_lost_request_is_not_committed(self) -> None:
        """A commit that never arrived is not in, and the next one at its version wins."""
        wire = Wire()
        store, other = await self.make_wired_metastores([wire, Wire()])
        first = await commit(store, 1, b"1")
        wire.next = [Fate.LOST_REQUEST]
        assert not isinstance(await store.commit(ref(2), b"lost"), Committed)
        assert await other.latest() == Record(first, b"1")
        second = await commit(store, 2, b"2")
        assert await other.latest() == Record(second, b"2")

    async def test_a_late_commit_lands_only_at_the_head(self) -> None:
        """One on its way is `Unknown`; it may still land, but over nobody's version."""
        for overtaken in (False, True):
            wire = Wire()
            store, other = await self.make_wired_metastores([wire, Wire()])
            await commit(store, 1, b"1")
            wire.next, late = [Fate.LATE], ref(2)
            assert isinstance(await store.commit(late, b"late"), Unknown)
            second = await commit(other, 2, b"other") if overtaken else late
            await wire.deliver()
            for handle in (store, other):
                assert await handle.latest() == Record(second, b"other" if overtaken else b"late")

    async def test_latest_never_goes_back(self) -> None:
        """A head once read by anybody is never followed by an older one, while old versions are deleted."""
        writer, deleter, reader = await self.make_metastores(3)
        refs = [await commit(writer, 1, b"1")]
        done = asyncio.Event()

        async def read() -> None:
            highest = 1
            while not done.is_set():
                committed = refs[-1].version
                head = await reader.latest()
                assert head is not None
                assert head.ref.version >= max(highest, committed)
                assert head.payload == b"%d" % head.ref.version
                highest = head.ref.version
                await asyncio.sleep(0)

        async def remove() -> None:
            while not done.is_set():
                head = await deleter.latest()
                assert head is not None
                await deleter.delete([each for each in refs if each.version < head.ref.version])
                await asyncio.sleep(0)

        async def write() -> None:
            try:
                for version in range(2, 12 + self.rounds):
                    refs.append(await commit(writer, version, b"%d" % version))
                    await asyncio.sleep(0)
            finally:
                done.set()

        await asyncio.gather(write(), read(), remove())

    async def test_delete(self) -> None:
        """Deleted versions are not there, others stay; the head and above cannot be deleted; deleting again is fine."""
        first, second = await self.make_metastores(2)
        refs = [await commit(first, version, b"%d" % version) for version in range(1, 7)]
        await second.delete([])
        await second.delete([refs[1], refs[2]])
        await second.delete([refs[1]])
        assert await second.versions() == [refs[0], *refs[3:]]
        assert await second.read(refs[1]) is None
        assert await second.read(refs[0]) == Record(refs[0], b"1")
        await _refused(second.delete([refs[5]]))
        await _refused(second.delete([refs[0], ref(9)]))
        assert await second.versions() == [refs[0], *refs[3:]]
        assert await first.latest() == Record(refs[5], b"6")

    async def test_a_sleeper_wins_no_deleted_version(self) -> None:
        """A committer that slept while its version was taken and deleted never hears that it committed."""
        sleeper, other = await self.make_metastores(2)
        await commit(other, 1, b"1")
        assert await sleeper.latest() is not None
        refs = [await commit(other, version, b"%d" % version) for version in range(2, 6)]
        await other.delete(refs[:3])
        outcome = await sleeper.commit(ref(2), b"sleeper")
        assert not isinstance(outcome, Committed)
        for handle in (sleeper, other):
            assert await handle.latest() == Record(refs[-1], b"5")
        newest = await commit(sleeper, 6, b"6")
        assert await other.latest() == Record(newest, b"6")

    async def test_the_boundary_stops_a_sleeping_committer(self) -> None:
        """A committer stopped in the middle of its commit, while its version is taken and deleted, wakes up and is
        never hears that it committed; the head stays, and what it left behind can be collected."""
        wire = Wire()
        sleeper, other = await self.make_wired_metastores([wire, Wire()])
        await commit(other, 1, b"1")
        assert await sleeper.latest() is not None
        wire.next = [Fate.ASLEEP_BEFORE]
        async with without_an_answer(wire, sleeper.commit(ref(2), b"sleeper")) as asleep:
            refs = [await commit(other, version, b"%d" % version) for version in range(2, 6)]
            await other.delete(refs[:3])
        assert not isinstance(asleep.result(), Committed)
        for handle in (sleeper, other):
            assert await handle.latest() == Record(refs[-1], b"5")
        await other.collect([])
        assert await other.versions() == refs[-1:]
        newest = await commit(sleeper, 6, b"6")
        assert await other.latest() == Record(newest, b"6")

    async def test_a_committer_asleep_since_its_commit_does_not_hear_that_it_lost(self) -> None:
        """It won, was superseded and deleted before it heard: committed or unknown, never a conflict."""
        wire = Wire()
        sleeper, other = await self.make_wired_metastores([wire, Wire()])
        await commit(other, 1, b"1")
        assert await sleeper.latest() is not None
        wire.next, mine = [Fate.ASLEEP_AFTER], ref(2)
        async with without_an_answer(wire, sleeper.commit(mine, b"sleeper")) as asleep:
            assert await other.latest() == Record(mine, b"sleeper")
            refs = [await commit(other, version, b"%d" % version) for version in range(3, 6)]
            await other.delete([mine, refs[0]])
        assert not isinstance(asleep.result(), Conflict)
        for handle in (sleeper, other):
            assert await handle.latest() == Record(refs[-1], b"5")

    async def test_collect(self) -> None:
        """Collecting keeps the head, what is retained and what is newer than what it was given, and nothing else."""
        first, second = await self.make_metastores(2)
        refs = [await commit(first, version, b"%d" % version) for version in range(1, 8)]
        assert await second.collect([refs[1]], as_of=refs[4], dry_run=True) == 3
        assert await second.collect([refs[1]], as_of=refs[4], limit=2, dry_run=True) == 2
        assert await second.versions() == refs
        assert await second.collect([refs[1]], as_of=refs[4], limit=2) == 2
        assert await second.versions() == [refs[1], *refs[3:]]
        assert await second.collect([refs[1]], as_of=refs[4], limit=2) == 1
        assert await second.versions() == [refs[1], *refs[4:]]
        assert await second.collect([refs[1]]) == 2
        assert await second.versions() == [refs[1], refs[6]]
        assert await second.collect([refs[1]]) == 0
        assert await first.latest() == Record(refs[6], b"7")
        assert await first.read(refs[1]) == Record(refs[1], b"2")
        await commit(first, 8, b"8")


def ref(version: int, token: str | None = None) -> VersionRef:
    """A ref nobody else has."""
    return VersionRef(version, MetaRuntime().token() if token is None else token)


async def commit(store: MetaStore, version: int, payload: bytes) -> VersionRef:
    """Commit what must win."""
    wanted = ref(version)
    outcome = await store.commit(wanted, payload)
    assert outcome == Committed(wanted), outcome
    return wanted


async def _token(store: MetaStore, version: int) -> str:
    return next(each.token for each in await store.versions() if each.version == version)


async def _refused(work: Awaitable[object]) -> None:
    try:
        await work
    except MetaStoreInvalidError:
        return
    raise AssertionError("a call that cannot be right was accepted")
