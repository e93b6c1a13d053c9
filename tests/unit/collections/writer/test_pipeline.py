"""`slate_async.collections.writer.pipeline`: order, windows, failures, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from slate_async.collections.writer.pipeline import Pipeline
from slate_async.errors import ClosedError, InvalidError, UnavailableError
from slate_async.runtime.supervisor import Supervisor
from tests.engine import settle, starts


@dataclass
class Gate:
    """An append that ends when the test says so."""

    made: Gates
    number: int
    ended: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def send(self) -> None:
        self.made.sent.append(self.number)
        await self.ended

    def acknowledge(self) -> None:
        self.made.acknowledged.append(self.number)


class Gates:
    """Appends through one pipeline."""

    def __init__(self, supervisor: Supervisor, parallelism: int) -> None:
        self.pipeline = Pipeline(supervisor, parallelism, lambda: self.failures.append(list(self.acknowledged)))
        self.gates: dict[int, Gate] = {}
        self.sent: list[int] = []
        self.acknowledged: list[int] = []
        self.failures: list[list[int]] = []

    async def append(self, number: int) -> None:
        async def prepare() -> int:
            return number

        await self.pipeline.append(prepare, self.accept)

    def accept(self, number: int) -> Gate:
        if number < 0:
            raise InvalidError("refused")
        gate = self.gates[number] = Gate(self, number)
        return gate

    def end(self, *numbers: int, error: Exception | None = None) -> None:
        for number in numbers:
            if error is None:
                self.gates[number].ended.set_result(None)
            else:
                self.gates[number].ended.set_exception(error)


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    """Of one pipeline's tasks."""
    made = Supervisor("test", lambda cause: None)
    yield made
    await made.close()


async def test_appends_are_sent_at_once_and_acknowledged_in_order(supervisor: Supervisor) -> None:
    gates = Gates(supervisor, 3)
    calls = starts(*map(gates.append, range(5)))
    await settle()
    assert gates.sent == [0, 1, 2]
    gates.end(2, 1)
    await settle()
    assert (gates.acknowledged, [call.done() for call in calls]) == ([], [False] * 5)
    gates.end(0)
    await settle()
    assert (gates.acknowledged, gates.sent) == ([0, 1, 2], [0, 1, 2, 3, 4])
    gates.end(3, 4)
    await asyncio.gather(*calls)
    assert gates.failures == []


async def test_a_failure_fails_those_behind_it_and_no_others(supervisor: Supervisor) -> None:
    gates = Gates(supervisor, 4)
    calls = starts(*map(gates.append, range(4)))
    await settle()
    gates.end(2, 3)
    gates.end(1, error=UnavailableError("lost", outcome="not_applied"))
    await settle()
    assert gates.failures == []
    gates.end(0)
    first, *others = await asyncio.gather(*calls, return_exceptions=True)
    assert first is None
    outcomes = [(str(error)[:9], getattr(error, "outcome", None)) for error in others]
    assert outcomes == [("lost", "not_applied"), ("an append", "unknown"), ("an append", "unknown")]
    assert (gates.acknowledged, gates.failures) == ([0], [[0]])


async def test_after_a_failure_a_new_chain_does_not_wait_for_the_old_one(supervisor: Supervisor) -> None:
    gates = Gates(supervisor, 4)
    old = starts(gates.append(0), gates.append(1))
    await settle()
    gates.end(0, error=UnavailableError("lost", outcome="unknown"))
    await settle()
    new = starts(gates.append(2))
    await settle()
    gates.end(2)
    await new[0]
    gates.end(1)
    await asyncio.wait(old)
    assert (gates.acknowledged, gates.failures) == ([2], [[]])


async def test_a_refused_append_leaves_its_place_to_the_next(supervisor: Supervisor) -> None:
    gates = Gates(supervisor, 1)
    for _ in range(3):
        with pytest.raises(InvalidError):
            await gates.append(-1)
    calls = starts(gates.append(1))
    await settle()
    gates.end(1)
    await calls[0]


async def test_cancelled_before_it_is_accepted_nothing_happens(supervisor: Supervisor) -> None:
    gates = Gates(supervisor, 1)
    calls = starts(*map(gates.append, range(4)))
    await settle()
    for call in calls[1:3]:
        call.cancel()
    await settle()
    gates.end(0)
    await settle()
    gates.end(3)
    await calls[3]
    assert gates.sent == [0, 3]


async def test_cancelled_after_that_it_goes_on(supervisor: Supervisor, caplog: pytest.LogCaptureFixture) -> None:
    gates = Gates(supervisor, 2)
    calls = starts(*map(gates.append, range(2)))
    await settle()
    for call in calls:
        call.cancel()
    await settle()
    gates.end(0)
    gates.end(1, error=UnavailableError("lost"))
    await gates.pipeline.drain()
    assert gates.acknowledged == [0]
    assert "nobody waits for any more failed: lost" in caplog.text


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_task_that_is_ended_from_outside_ends_what_is_behind_it(supervisor: Supervisor, number: int) -> None:
    gates = Gates(supervisor, 3)
    calls = starts(*map(gates.append, range(3)))
    await settle()
    list(supervisor._tasks.values())[number].cancel()
    await settle()
    gates.end(*(other for other in range(3) if other != number))
    await asyncio.wait(calls)
    errors = [call.exception() for call in calls]
    assert [type(error) for error in errors[: number + 1]] == [type(None)] * number + [ClosedError]
    assert {type(error) for error in errors[number + 1 :]} <= {UnavailableError}
    assert all(error.outcome == "unknown" for error in errors[number:] if error is not None)  # type: ignore[attr-defined]
    assert gates.acknowledged == list(range(number))


async def test_all_that_waits_for_one_is_acknowledged_with_it(supervisor: Supervisor) -> None:
    gates = Gates(supervisor, 64)
    calls = starts(*map(gates.append, range(64)))
    await settle()
    gates.end(*range(1, 64))
    await settle()
    gates.end(0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert gates.acknowledged == list(range(64))
    await asyncio.gather(*calls)
