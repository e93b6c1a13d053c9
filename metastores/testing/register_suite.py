"""What every `Register` must do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from metastores.errors import MetaStoreInvalidError
from metastores.protocol import Cell, Committed, Conflict, Register, Unknown
from metastores.testing.racing import ATTEMPTS, breathe, mark_lists, without_an_answer
from metastores.testing.wire import Fate, Faults, Wire, WiredRegister


class RegisterSuite:
    """Subclass and implement `make_registers`. ``racers`` and ``rounds`` may be lowered for slow backends."""

    racers = 12
    rounds = 5

    async def make_registers(self, count: int) -> Sequence[Register]:
        """``count`` handles, as different processes would have them, on one cell never written."""
        raise NotImplementedError

    async def make_wired_registers(self, wires: Sequence[Wire]) -> Sequence[Register]:
        """Like `make_registers`, one handle for each wire, which its conditional writes go over.

        Override it if the handle sends requests of its own, so that the wire comes between them and their server."""
        handles = await self.make_registers(len(wires))
        return [WiredRegister(handle, wire) for handle, wire in zip(handles, wires, strict=True)]

    async def test_starts_empty(self) -> None:
        """A cell never written reads as nothing."""
        (register,) = await self.make_registers(1)
        assert await register.read() is None
        await register.close()

    async def test_create_then_replace(self) -> None:
        """Each write is read back by another handle, with the tag the writer was given."""
        first, second = await self.make_registers(2)
        tag: str | None = None
        for value in (b"", b"one", b"\x00\xff" * 1000):
            outcome = await first.compare_and_set(tag, value)
            assert isinstance(outcome, Committed)
            tag = outcome.value
            assert await second.read() == Cell(value, tag)

    async def test_create_on_existing_conflicts(self) -> None:
        """Creating what exists is refused and shows what is there."""
        first, second = await self.make_registers(2)
        won = await first.compare_and_set(None, b"first")
        lost = await second.compare_and_set(None, b"second")
        assert isinstance(won, Committed)
        assert isinstance(lost, Conflict)
        assert lost.current == Cell(b"first", won.value)

    async def test_stale_tag_conflicts(self) -> None:
        """A write that expects a replaced value is refused, whichever handle sends it."""
        first, second = await self.make_registers(2)
        tag = await _set(first, None, b"a")
        newer = await _set(first, tag, b"b")
        for handle in (first, second):
            outcome = await handle.compare_and_set(tag, b"c")
            assert isinstance(outcome, Conflict)
            assert outcome.current == Cell(b"b", newer)

    async def test_tags_never_repeat(self) -> None:
        """Going back to equal bytes gives another tag, so the older tag stays stale (ABA)."""
        first, second = await self.make_registers(2)
        tag = await _set(first, None, b"a")
        tags = [tag]
        for value in (b"b", b"a", b"a", b"b", b"a"):
            tags.append(await _set(first, tags[-1], value))
        assert len(set(tags)) == len(tags)
        assert isinstance(await second.compare_and_set(tag, b"x"), Conflict)
        assert isinstance(await second.compare_and_set(tags[2], b"x"), Conflict)

    async def test_one_racer_creates(self) -> None:
        """Of racing creators one wins, and its value is the one there."""
        for _ in range(self.rounds):
            handles = await self.make_registers(self.racers)
            outcomes = await asyncio.gather(
                *(handle.compare_and_set(None, b"%d" % number) for number, handle in enumerate(handles))
            )
            winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Committed)]
            assert len(winners) == 1, outcomes
            cell = await handles[0].read()
            assert cell is not None
            assert cell.value == b"%d" % winners[0]

    async def test_no_update_is_lost(self) -> None:
        """Racers adding their marks: every mark is in at the end, exactly once."""
        await self._race([Wire() for _ in range(self.racers)])

    async def test_no_update_is_lost_on_bad_wires(self) -> None:
        """The same while answers and requests get lost, come late and come twice."""
        await self._race([Wire(random.Random(number), Faults()) for number in range(self.racers)])

    async def _race(self, wires: Sequence[Wire]) -> None:
        calm = Wire()
        first, *handles = await self.make_wired_registers([calm, *wires])
        await _set(first, None, b"")
        lists = mark_lists(self.racers, self.rounds)
        await asyncio.gather(*(self._add_marks(*each) for each in zip(handles, wires, lists, strict=True)))
        cell = await first.read()
        assert cell is not None
        assert sorted(cell.value.decode().split()) == sorted(mark for marks in lists for mark in marks)

    async def _add_marks(self, register: Register, wire: Wire, marks: Sequence[str]) -> None:
        rng = random.Random(marks[0])
        for mark in marks:
            for attempt in range(ATTEMPTS):
                await breathe(rng, attempt)
                await wire.deliver()
                cell = await register.read()
                assert cell is not None
                if mark in cell.value.decode().split():
                    break
                await asyncio.sleep(0)
                outcome = await register.compare_and_set(cell.tag, cell.value + f" {mark}".encode())
                if isinstance(outcome, Committed):
                    break
                assert isinstance(outcome, Conflict | Unknown)
            else:
                raise AssertionError(f"{mark} did not get in within {ATTEMPTS} attempts")

    async def test_a_write_without_an_answer_is_no_conflict(self) -> None:
        """A write that took effect although its answer was lost, or that met its own first copy, is in."""
        for fate in (Fate.LOST_ANSWER, Fate.RESENT):
            wire = Wire()
            register, other = await self.make_wired_registers([wire, Wire()])
            tag = await _set(register, None, b"a")
            wire.next = [fate]
            outcome = await register.compare_and_set(tag, b"b")
            assert isinstance(outcome, Committed | Unknown)
            cell = await other.read()
            assert cell is not None
            assert cell.value == b"b"
            if isinstance(outcome, Committed):
                assert outcome.value == cell.tag
            assert isinstance(await register.compare_and_set(tag, b"c"), Conflict)
            await _set(other, cell.tag, b"d")

    async def test_a_lost_request_is_not_committed(self) -> None:
        """A write that never arrived is not in, and the next one with the same tag wins."""
        wire = Wire()
        register, other = await self.make_wired_registers([wire, Wire()])
        tag = await _set(register, None, b"a")
        wire.next = [Fate.LOST_REQUEST]
        assert not isinstance(await register.compare_and_set(tag, b"b"), Committed)
        assert await other.read() == Cell(b"a", tag)
        await _set(register, tag, b"c")

    async def test_a_late_request_lands_only_while_its_tag_stands(self) -> None:
        """One on its way is `Unknown`; it may still land, but over nobody's write."""
        for overtaken in (False, True):
            wire = Wire()
            register, other = await self.make_wired_registers([wire, Wire()])
            tag = await _set(register, None, b"a")
            wire.next = [Fate.LATE]
            assert isinstance(await register.compare_and_set(tag, b"late"), Unknown)
            if overtaken:
                await _set(other, tag, b"other")
            await wire.deliver()
            for handle in (register, other):
                cell = await handle.read()
                assert cell is not None
                assert cell.value == (b"other" if overtaken else b"late")

    async def test_a_sleeper_writes_over_nobody(self) -> None:
        """A writer stopped before its request is sent does not commit over what came meanwhile; one stopped before
        the answer arrives is never said to have lost."""
        for fate in (Fate.ASLEEP_BEFORE, Fate.ASLEEP_AFTER):
            wire = Wire()
            sleeper, other = await self.make_wired_registers([wire, Wire()])
            await _set(sleeper, None, b"a")
            wire.next = [fate]
            async with without_an_answer(wire, self._replace(sleeper, b"sleeper")) as asleep:
                for value in (b"b", b"c"):
                    cell = await other.read()
                    assert cell is not None
                    await _set(other, cell.tag, value)
            outcome = asleep.result()
            assert not isinstance(outcome, Committed if fate is Fate.ASLEEP_BEFORE else Conflict)
            cell = await sleeper.read()
            assert cell is not None
            assert cell.value == b"c"

    async def _replace(self, register: Register, value: bytes) -> object:
        cell = await register.read()
        assert cell is not None
        return await register.compare_and_set(cell.tag, value)

    async def test_size_limit(self) -> None:
        """300 KB fit; what is over 350 KB is refused before anything is sent."""
        (register,) = await self.make_registers(1)
        await _set(register, None, b"x" * 300_000)
        cell = await register.read()
        assert cell is not None
        assert len(cell.value) == 300_000
        try:
            await register.compare_and_set(cell.tag, b"x" * 400_000)
        except MetaStoreInvalidError:
            return
        raise AssertionError("a value of 400,000 bytes was accepted")


async def _set(register: Register, tag: str | None, value: bytes) -> str:
    outcome = await register.compare_and_set(tag, value)
    assert isinstance(outcome, Committed), outcome
    return outcome.value
