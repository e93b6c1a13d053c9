"""What a register says after lost answers, repeated requests and late landings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from metastores.chained_register import LINKS, Fate, judge
from metastores.envelope import Kind, Sealed
from metastores.errors import MetaStoreCorruptionError, MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.if_match import ObjectRegister
from metastores.protocol import Committed, Conflict, Unknown, VersionRef
from metastores.testing import LostError, MemoryObjects

KEY = "writer/current"


def ref(number: int, letter: str) -> VersionRef:
    return VersionRef(number, letter * 32)


def cell(*lineage: VersionRef) -> Sealed:
    return Sealed(Kind.CELL, KEY, lineage[0], b"", lineage[1:])


@pytest.mark.parametrize(
    ("current", "expected", "fate"),
    [
        pytest.param(None, None, Fate.OPEN, id="not there yet, may come"),
        pytest.param(None, ref(1, "a"), Fate.LOST, id="removed from outside"),
        pytest.param(cell(ref(1, "a")), ref(1, "a"), Fate.OPEN, id="still the one expected"),
        pytest.param(cell(ref(2, "c"), ref(1, "a")), ref(1, "a"), Fate.MINE, id="mine"),
        pytest.param(cell(ref(3, "d"), ref(2, "c"), ref(1, "a")), ref(1, "a"), Fate.MINE, id="mine, superseded"),
        pytest.param(cell(ref(2, "b"), ref(1, "a")), ref(1, "a"), Fate.LOST, id="another succeeded it"),
        pytest.param(cell(ref(3, "d"), ref(2, "b")), ref(1, "a"), Fate.LOST, id="another, superseded"),
        pytest.param(cell(ref(9, "d"), ref(8, "b")), ref(1, "a"), Fate.UNCLEAR, id="too long ago"),
        pytest.param(cell(ref(1, "e")), ref(1, "a"), Fate.LOST, id="another history"),
    ],
)
def test_judge(current: Sealed | None, expected: VersionRef | None, fate: Fate) -> None:
    mine = ref(1 if expected is None else expected.version + 1, "c")
    assert judge(current, expected, mine) is fate


class Wire(MemoryObjects):
    """Objects whose next conditional write can be tampered with."""

    def __init__(self) -> None:
        super().__init__()
        self.tamper: Callable[[Callable[[], str | None]], Awaitable[str | None]] | None = None
        self.sent = 0

    async def _send(self, effect: Callable[[], str | None]) -> str | None:
        self.sent += 1
        tamper, self.tamper = self.tamper, None
        return effect() if tamper is None else await tamper(effect)

    async def create(self, key: str, data: bytes) -> str | None:
        return await self._send(lambda: self.create_now(key, data))

    async def replace(self, key: str, data: bytes, etag: str) -> str | None:
        return await self._send(lambda: self.replace_now(key, data, etag))


async def start(wire: Wire) -> tuple[ObjectRegister, ObjectRegister, str]:
    mine, other = ObjectRegister(wire, KEY), ObjectRegister(wire, KEY)
    first = await other.compare_and_set(None, b"first")
    assert isinstance(first, Committed)
    return mine, other, first.value


async def test_lost_answer_is_found_to_be_committed() -> None:
    wire = Wire()
    mine, _, tag = await start(wire)

    async def lose(effect: Callable[[], str | None]) -> str | None:
        effect()
        raise LostError

    wire.tamper = lose
    outcome = await mine.compare_and_set(tag, b"mine")
    current = await mine.read()
    assert current is not None
    assert outcome == Committed(current.tag)
    assert current.value == b"mine"


async def test_lost_request_is_unknown_and_may_land_later() -> None:
    wire = Wire()
    mine, _, tag = await start(wire)
    late: list[Callable[[], str | None]] = []

    async def delay(effect: Callable[[], str | None]) -> str | None:
        late.append(effect)
        raise LostError

    wire.tamper = delay
    assert isinstance(await mine.compare_and_set(tag, b"mine"), Unknown)
    assert late[0]() is not None


async def test_lost_answer_then_superseded_is_still_committed() -> None:
    wire = Wire()
    mine, other, tag = await start(wire)

    async def supersede(effect: Callable[[], str | None]) -> str | None:
        effect()
        for _ in range(LINKS):
            current = await other.read()
            assert current is not None
            await other.compare_and_set(current.tag, b"later")
        raise LostError

    wire.tamper = supersede
    outcome = await mine.compare_and_set(tag, b"mine")
    assert isinstance(outcome, Committed)
    assert isinstance(await mine.compare_and_set(outcome.value, b"again"), Conflict)


async def test_too_long_ago_is_unknown() -> None:
    wire = Wire()
    mine, other, tag = await start(wire)

    async def supersede(effect: Callable[[], str | None]) -> str | None:
        for _ in range(LINKS + 2):
            current = await other.read()
            assert current is not None
            await other.compare_and_set(current.tag, b"later")
        return effect()

    wire.tamper = supersede
    assert isinstance(await mine.compare_and_set(tag, b"mine"), Unknown)


async def test_a_resent_request_that_meets_its_own_write_is_committed() -> None:
    wire = Wire()
    mine, other, tag = await start(wire)

    async def twice(effect: Callable[[], str | None]) -> str | None:
        effect()
        return effect()

    wire.tamper = twice
    outcome = await mine.compare_and_set(tag, b"mine")
    assert isinstance(outcome, Committed)
    assert isinstance(await other.compare_and_set(outcome.value, b"next"), Committed)


async def test_lost_answer_behind_another_is_a_certain_conflict() -> None:
    wire = Wire()
    mine, other, tag = await start(wire)
    late: list[Callable[[], str | None]] = []

    async def overtake(effect: Callable[[], str | None]) -> str | None:
        assert isinstance(await other.compare_and_set(tag, b"other"), Committed)
        late.append(effect)
        raise LostError

    wire.tamper = overtake
    outcome = await mine.compare_and_set(tag, b"mine")
    assert isinstance(outcome, Conflict)
    assert outcome.current == await other.read()
    assert late[0]() is None


async def test_a_store_that_refuses_what_holds_is_unknown_not_a_conflict() -> None:
    wire = Wire()
    mine, _, tag = await start(wire)

    async def refuse(effect: Callable[[], str | None]) -> str | None:
        return None

    wire.tamper = refuse
    assert isinstance(await mine.compare_and_set(tag, b"mine"), Unknown)


async def test_certainly_not_applied_is_an_error_and_nothing_else() -> None:
    wire = Wire()
    mine, _, tag = await start(wire)

    class ThrottledError(Exception):
        outcome = "not_applied"

    async def throttle(effect: Callable[[], str | None]) -> str | None:
        raise ThrottledError

    wire.tamper = throttle
    with pytest.raises(MetaStoreUnavailableError):
        await mine.compare_and_set(tag, b"mine")


async def test_a_stale_tag_costs_no_write() -> None:
    wire = Wire()
    mine, other, tag = await start(wire)
    await other.compare_and_set(tag, b"second")
    sent = wire.sent
    assert isinstance(await mine.compare_and_set(tag, b"mine"), Conflict)
    assert wire.sent == sent


async def test_bad_tags_and_damaged_values() -> None:
    wire = Wire()
    mine, _, tag = await start(wire)
    with pytest.raises(MetaStoreInvalidError):
        await mine.compare_and_set("nonsense", b"")
    data = bytearray(wire.objects[KEY])
    data[-1] ^= 1
    wire.objects[KEY] = bytes(data)
    with pytest.raises(MetaStoreCorruptionError, match=KEY):
        await mine.read()
    with pytest.raises(MetaStoreCorruptionError, match=KEY):
        await mine.compare_and_set(tag, b"x")
