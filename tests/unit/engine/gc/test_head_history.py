"""Sightings: names there and back, the newest one of an age, and which are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.engine.gc.head_history import MOST, NEVER, Sighting, newest_until, parse_sighting, revise

MIN_AGE = 800


def test_names_there_and_back() -> None:
    sighting = Sighting(7, 1_750_000_000_000)
    assert sighting.key == "gc/heads/00000000000000000007.001750000000000"
    assert parse_sighting(sighting.key) == sighting
    for other in ("gc/heads/7.8", sighting.key + "0", "gc/probe/x", "gc/heads/"):
        assert parse_sighting(other) is None


@pytest.mark.parametrize(("time_ms", "expected"), [(99, NEVER), (100, Sighting(1, 100)), (250, Sighting(5, 200))])
def test_the_newest_version_seen_by_then(time_ms: int, expected: Sighting) -> None:
    assert newest_until([Sighting(5, 200), Sighting(1, 100), Sighting(9, 300)], time_ms) == expected


def revised(known: list[Sighting], now: Sighting, *, waiting: bool = True) -> list[Sighting]:
    changes = revise(known, now, min_age_ms=MIN_AGE, skew_ms=10, waiting=waiting)
    return sorted({*known, *changes.add} - {*changes.remove})


def test_none_is_kept_while_no_garbage_waits() -> None:
    assert revised([Sighting(1, 100)], Sighting(2, 200), waiting=False) == []
    assert revised([], Sighting(2, 200), waiting=False) == []


def test_the_first_sighting_of_a_version_stays() -> None:
    assert revised([Sighting(1, 100)], Sighting(1, 100 + MIN_AGE - 1)) == [Sighting(1, 100)]


def test_what_a_newer_aged_one_says_better_goes() -> None:
    known = [Sighting(1, 100), Sighting(2, 200), Sighting(3, 300)]
    assert revised(known, Sighting(4, 200 + MIN_AGE)) == [Sighting(2, 200), Sighting(3, 300), Sighting(4, 1_000)]


def test_a_sighting_from_the_future_goes() -> None:
    assert revised([Sighting(9, 1_011), Sighting(8, 1_010)], Sighting(9, 1_000)) == [Sighting(8, 1_010)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60)), max_size=200))
def test_few_are_kept_and_the_floor_follows_the_head(steps: list[tuple[int, int]]) -> None:
    """However often collectors look: what they know never lies, and lags at most by the age and one step of it."""
    known: list[Sighting] = []
    version, now, history = 1, 0, [(0, 1)]
    for more, pause in steps:
        version, now = version + more, now + pause
        history.append((now, version))
        known = revised(known, Sighting(version, now))
        assert len(known) <= MOST + 3
        aged = newest_until(known, now - MIN_AGE).version
        truth = max((v for t, v in history if t <= now - MIN_AGE), default=0)
        lagging = max((v for t, v in history if t <= now - MIN_AGE - MIN_AGE // MOST - 60), default=0)
        assert lagging <= aged <= truth or aged == 0 == lagging
