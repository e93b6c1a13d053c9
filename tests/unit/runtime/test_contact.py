"""Whether what is sent is answered: failures, silence, slow bodies, and requests that are given up."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from slate_async.errors import ConflictError, UnavailableError
from slate_async.runtime.contact import FORGOTTEN_S, SLOWEST_BYTES_PER_S, UNANSWERED_S, Contact, Kind


class TurnedClock:
    """Moves when the test moves it."""

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


def answered(contact: Contact, kind: Kind) -> None:
    with contact.asking(kind):
        pass


def test_a_failure_counts_until_that_kind_is_answered() -> None:
    clock = TurnedClock()
    contact = Contact(clock)
    failing(contact, "log", UnavailableError("no"))
    clock.time += 2
    answered(contact, "manifest")
    assert (contact.lost, contact.last_ms) == (True, 0)
    clock.time += 3
    assert contact.last_ms == 3_000
    answered(contact, "log")
    assert (contact.lost, contact.last_ms) == (False, 0)


def test_a_failure_that_is_repeated_with_an_answer_within_a_second_does_not_count() -> None:
    clock = TurnedClock()
    contact = Contact(clock)
    failing(contact, "manifest", UnavailableError("slow down"))
    assert not contact.lost
    clock.time += UNANSWERED_S - 0.1
    failing(contact, "manifest", UnavailableError("slow down"))
    assert not contact.lost
    clock.time += 0.2  # a second after the first of them
    assert contact.lost
    answered(contact, "manifest")
    failing(contact, "manifest", UnavailableError("slow down"))
    assert not contact.lost


def test_silence_that_ends_in_a_failure_goes_on_counting() -> None:
    clock = TurnedClock()
    contact = Contact(clock)
    with contextlib.suppress(UnavailableError), contact.asking("read"):
        clock.time += UNANSWERED_S + 1
        assert contact.lost
        raise UnavailableError("no answer")
    assert contact.lost


def test_a_kind_that_is_never_asked_again_is_forgotten_while_others_are_answered() -> None:
    clock = TurnedClock()
    contact = Contact(clock)
    failing(contact, "read", UnavailableError("no"))
    clock.time += FORGOTTEN_S - 1
    answered(contact, "manifest")
    assert contact.lost
    clock.time += 2
    assert contact.lost, "nobody was answered since"
    answered(contact, "manifest")
    assert not contact.lost


def test_an_old_failure_is_not_forgotten_for_an_answer_to_what_was_asked_before() -> None:
    clock = TurnedClock()
    contact = Contact(clock)
    failing(contact, "log", UnavailableError("no"))
    with contact.asking("manifest", SLOWEST_BYTES_PER_S * 1000):
        clock.time += FORGOTTEN_S + 1
    assert contact.lost


def test_a_conflict_is_an_answer() -> None:
    clock = TurnedClock()
    contact = Contact(clock)
    failing(contact, "manifest", UnavailableError("no"))
    clock.time += 2
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
