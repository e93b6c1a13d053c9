"""The writer's register only ever moves forward."""

from __future__ import annotations

import pytest

from slate_async.errors import CorruptionError
from slate_async.storage.log.recovery import EpochRange
from slate_async.storage.log.register import EMPTY, decode, encode


def test_first_claim_of_an_empty_register() -> None:
    first = EMPTY.claim(1, "a", inherited_end=0, log_start=1)
    assert first.ranges == (EpochRange(1, 1),)
    assert first.last_written == 0


def test_claim_closes_the_old_range_and_starts_behind_what_it_inherits() -> None:
    held = EMPTY.claim(1, "a", inherited_end=0, log_start=1).publish(4)
    taken = held.claim(2, "b", inherited_end=6, log_start=3)
    assert taken.ranges == (EpochRange(1, 1, 6), EpochRange(2, 7))
    assert taken.last_written == 6
    assert [taken.owner(n) for n in (3, 6, 7)] == [1, 1, 2]


def test_claim_starts_behind_what_the_manifest_compacted_and_drops_its_ranges() -> None:
    held = EMPTY.claim(1, "a", inherited_end=0, log_start=1).publish(4)
    taken = held.claim(5, "b", inherited_end=4, log_start=9)
    assert taken.ranges == (EpochRange(5, 9),)
    assert taken.last_written == 8


def test_empty_epochs_leave_no_range_that_owns_anything() -> None:
    register = EMPTY
    for epoch in range(1, 5):
        register = register.claim(epoch, str(epoch), inherited_end=0, log_start=1)
    assert register.owner(1) == 4
    assert register.ranges[-1] == EpochRange(4, 1)
    assert len(register.ranges) == 1


def test_publish_never_goes_back() -> None:
    held = EMPTY.claim(1, "a", inherited_end=0, log_start=1)
    assert held.publish(5).publish(3).last_written == 5


def test_round_trip_and_refusal_of_damage() -> None:
    register = EMPTY.claim(1, "a", inherited_end=0, log_start=1).publish(4).claim(2, "b", inherited_end=4, log_start=1)
    assert decode(encode(register)) == register
    for damaged in (b"", encode(register)[:-1], b"\xc0", encode(register).replace(b"format", b"tamrof")):
        with pytest.raises(CorruptionError):
            decode(damaged)
