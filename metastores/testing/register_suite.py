"""What every `Register` must do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from metastores.errors import MetaStoreInvalidError
from metastores.protocol import Cell, Committed, Conflict, Register, Unknown

ATTEMPTS = 2_000


class RegisterSuite:
    """Subclass and implement `make_registers`. ``racers`` and ``rounds`` may be lowered for slow backends."""

    racers = 12
    rounds = 5

    async def make_registers(self, count: int) -> Sequence[Register]:
        """``count`` handles, as different processes would have them, on one cell never written."""
        raise NotImplementedError

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
        handles = await self.make_registers(self.racers)
        await _set(handles[0], None, b"")
        marks = [f"{racer}-{mark}" for racer in range(self.racers) for mark in range(self.rounds)]
        await asyncio.gather(
            *(
                self._add_marks(handle, [mark for mark in marks if mark.startswith(f"{racer}-")])
                for racer, handle in enumerate(handles)
            )
        )
        cell = await handles[0].read()
        assert cell is not None
        assert sorted(cell.value.decode().split()) == sorted(marks)

    async def _add_marks(self, register: Register, marks: Sequence[str]) -> None:
        for mark in marks:
            for _ in range(ATTEMPTS):
                cell = await register.read()
                assert cell is not None
                if mark in cell.value.decode().split():
                    break
                outcome = await register.compare_and_set(cell.tag, cell.value + f" {mark}".encode())
                if isinstance(outcome, Committed):
                    break
                assert isinstance(outcome, Conflict | Unknown)
            else:
                raise AssertionError(f"{mark} did not get in within {ATTEMPTS} attempts")

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
