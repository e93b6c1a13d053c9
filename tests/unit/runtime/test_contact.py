"""Whether what is sent is answered: failures, silence, slow bodies, and requests that are given up."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from slate_async.errors import ConflictError, UnavailableError
from slate_async.runtime.contact import SLOWEST_BYTES_PER_S, UNANSWERED_S, Contact, Kind


class TurnedClock:
    """Moves when told."""

    def __init__(self) -> None:
        self.time = 100.0

    def now_ms(self) -> int:
        return int(self.time * 1000)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


def failing(contact: Contact, kind: Kind, error: BaseException) -> None:
    with pytest.raises(type(error)), contact.asking(kind):
        raise error


def test_a_failure_counts_until_that_kind_is_answered() -> None:
    clock = TurnedClock()
    contact = Contact(clock)
    failing(contact, "log", UnavailableError("no"))
    clock.time += 2
    with contact.asking("manifest"):
        pass
    assert (contact.lost, contact.last_ms) == (True, 0)
    clock.time += 3
    assert contact.last_ms == 3_000
    with contact.asking("log"):
        pass
    assert (contact.lost, contact.last_ms) == (False, 0)


def test_a_conflict_is_an_answer() -> None:
    contact = Contact(TurnedClock())
    failing(contact, "manifest", UnavailableError("no"))
    failing(contact, "manifest", ConflictError("somebody was first"))
    assert not contact.lost


@pytest.mark.parametrize(("nbytes", "allowed"), [(0, 0.0), (4 * SLOWEST_BYTES_PER_S, 4.0)])
def test_silence_counts_after_a_second_and_what_a_body_takes(nbytes: int, allowed: float) -> None:
    clock = TurnedClock()
    contact = Contact(clock)
    with contact.asking("log", nbytes):
        clock.time += UNANSWERED_S + allowed - 0.01
        assert not contact.lost
        clock.time += 0.02
        assert contact.lost
    assert not contact.lost


@pytest.mark.parametrize(("after", "lost"), [(0.5, False), (1.5, True)])
def test_what_its_caller_gives_up_counts_if_it_was_due(after: float, lost: bool) -> None:
    clock = TurnedClock()
    contact = Contact(clock)
    with contextlib.suppress(asyncio.CancelledError), contact.asking("manifest"):
        clock.time += after
        raise asyncio.CancelledError
    assert contact.lost == lost
