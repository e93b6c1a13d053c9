"""The shipped suites catch backends that break a rule: each test here breaks one and names what must notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from metastores.chained_register import ChainedRegister
from metastores.factories import IfMatchFactory, PutIfAbsentFactory
from metastores.memory import MemoryFactory, MemoryRegister
from metastores.protocol import Committed, Conflict, MetaStore, MetaStoreFactory, Register, Unknown
from metastores.put_if_absent import PutIfAbsentMetaStore
from metastores.testing import MemoryObjects, MetaStoreSuite, RegisterSuite, Wire, WiredObjects

Make = Callable[[], MetaStoreFactory]
ATTEMPTS = 30
"""How often a suite may miss a broken rule: its races are real ones and do not always meet."""


class Manifests(MetaStoreSuite):
    """In short, over what ``make`` makes; memory has the suite's own wires around it."""

    racers = 4
    rounds = 3

    def __init__(self, make: Make) -> None:
        self.make = make

    async def make_metastores(self, count: int) -> Sequence[MetaStore]:
        factory, objects = self.make(), MemoryObjects()
        return [factory.manifest(objects, "x") for _ in range(count)]

    async def make_wired_metastores(self, wires: Sequence[Wire]) -> Sequence[MetaStore]:
        factory, objects = self.make(), MemoryObjects()
        if isinstance(factory, MemoryFactory):
            return await super().make_wired_metastores(wires)
        return [factory.manifest(WiredObjects(objects, wire), "x") for wire in wires]


class Registers(RegisterSuite):
    """The same of registers."""

    racers = 4
    rounds = 3

    def __init__(self, make: Make) -> None:
        self.make = make

    async def make_registers(self, count: int) -> Sequence[Register]:
        factory, objects = self.make(), MemoryObjects()
        return [factory.register(objects, "x") for _ in range(count)]

    async def make_wired_registers(self, wires: Sequence[Wire]) -> Sequence[Register]:
        factory, objects = self.make(), MemoryObjects()
        if isinstance(factory, MemoryFactory):
            return await super().make_wired_registers(wires)
        return [factory.register(WiredObjects(objects, wire), "x") for wire in wires]


async def always(*_: object) -> bool:
    return True


async def nothing(*_: object) -> None:
    return None


async def refused(self: Any, *_: object) -> Any:
    """A lost or refused answer taken for a lost race."""
    return Conflict(None)


async def believed(*_: object) -> Any:
    """A lost answer taken for a success."""
    return Committed("1." + "0" * 32 + ".x")


async def last_one_wins(self: MemoryRegister, expected_tag: str | None, value: bytes) -> Any:
    """No condition at all."""
    return await REAL_SET(self, None if self._cell is None else self._cell.tag, value)


async def never_sure(*_: object) -> Any:
    return Unknown("who knows")


async def conflict_past_the_boundary(*arguments: Any) -> Any:
    """A version that was deleted meanwhile taken for one that lost."""
    outcome = await REAL_CONFIRM(*arguments)
    return Conflict(None) if isinstance(outcome, Unknown) else outcome


REAL_CONFIRM = PutIfAbsentMetaStore._confirm
REAL_SET = MemoryRegister.compare_and_set


@pytest.mark.parametrize(
    ("make", "owner", "method", "instead", "suite", "test"),
    [
        (
            PutIfAbsentFactory,
            PutIfAbsentMetaStore,
            "_boundary_allows",
            always,
            Manifests,
            "test_the_boundary_stops_a_sleeping_committer",
        ),
        (
            PutIfAbsentFactory,
            PutIfAbsentMetaStore,
            "_raise_boundary",
            nothing,
            Manifests,
            "test_a_sleeper_wins_no_deleted_version",
        ),
        (
            PutIfAbsentFactory,
            PutIfAbsentMetaStore,
            "_find_out",
            refused,
            Manifests,
            "test_a_commit_without_an_answer_is_no_conflict",
        ),
        (
            PutIfAbsentFactory,
            PutIfAbsentMetaStore,
            "_find_out",
            believed,
            Manifests,
            "test_a_lost_request_is_not_committed",
        ),
        (PutIfAbsentFactory, PutIfAbsentMetaStore, "_find_out", never_sure, Manifests, "test_wrong_version_conflicts"),
        (
            IfMatchFactory,
            ChainedRegister,
            "_find_out",
            refused,
            Registers,
            "test_a_write_without_an_answer_is_no_conflict",
        ),
        (IfMatchFactory, ChainedRegister, "_find_out", refused, Manifests, "test_a_late_commit_lands_only_at_the_head"),
        (
            IfMatchFactory,
            ChainedRegister,
            "_find_out",
            believed,
            Registers,
            "test_a_late_request_lands_only_while_its_tag_stands",
        ),
        (
            PutIfAbsentFactory,
            PutIfAbsentMetaStore,
            "_confirm",
            conflict_past_the_boundary,
            Manifests,
            "test_a_committer_asleep_since_its_commit_does_not_hear_that_it_lost",
        ),
        (MemoryFactory, MemoryRegister, "compare_and_set", last_one_wins, Manifests, "test_no_commit_is_lost"),
        (
            MemoryFactory,
            MemoryRegister,
            "compare_and_set",
            last_one_wins,
            Manifests,
            "test_no_commit_is_lost_on_bad_wires",
        ),
        (MemoryFactory, MemoryRegister, "compare_and_set", last_one_wins, Registers, "test_no_update_is_lost"),
        (
            MemoryFactory,
            MemoryRegister,
            "compare_and_set",
            last_one_wins,
            Registers,
            "test_a_sleeper_writes_over_nobody",
        ),
    ],
)
async def test_a_broken_rule_is_noticed(
    make: Make,
    owner: type,
    method: str,
    instead: Any,
    suite: type[Manifests | Registers],
    test: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await getattr(suite(make), test)()
    monkeypatch.setattr(owner, method, instead)
    for _ in range(ATTEMPTS):
        try:
            await getattr(suite(make), test)()
        except AssertionError:
            return
    pytest.fail(f"{test} noticed nothing in {ATTEMPTS} attempts")
