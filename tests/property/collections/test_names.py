"""Names give back what they were made of, and nothing else is taken for a name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.names import (
    HashedFrontier,
    MergedName,
    NamedFrontier,
    PendingName,
    frontier_name,
    parse_merged,
    parse_pending,
)
from slate_async.collections.core.times import TIME_END, TimeKind
from tests.property.collections.strategies import KINDS

TOKENS = st.text("0123456789abcdef", min_size=32, max_size=32)
WRITERS = st.text("abcxyz019-", min_size=1, max_size=64).filter(lambda name: name != "main")
PARTS = st.integers(0, 9999)


def frontiers(kind: TimeKind) -> st.SearchStrategy[Frontier]:
    number = st.one_of(st.integers(0, 20), st.integers(0, TIME_END))
    return st.lists(st.tuples(*[number] * kind.coordinates), max_size=16 if kind is TimeKind.U64X2 else 1).map(Frontier)


def named(frontier: Frontier) -> NamedFrontier:
    """What a name can say of it."""
    text = frontier_name(frontier)
    return HashedFrontier(text[1:]) if text.startswith("h") else frontier


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_names_of_pending_batches_give_back_what_they_say(kind: TimeKind, data: st.DataObject) -> None:
    lower, upper = data.draw(frontiers(kind)), data.draw(st.one_of(st.none(), frontiers(kind)))
    writer = "main" if upper is None else data.draw(WRITERS)
    token, part = data.draw(st.one_of(st.just((None, None)), st.tuples(TOKENS, PARTS)))
    name = PendingName(writer, lower, upper, token, part)
    again = parse_pending(str(name), kind)
    assert again == PendingName(writer, named(lower), None if upper is None else named(upper), token, part)
    assert str(again) == str(name)
    assert parse_merged(str(name), kind) is None


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_names_of_merged_batches_give_back_what_they_say(kind: TimeKind, data: st.DataObject) -> None:
    lower, upper = data.draw(frontiers(kind)), data.draw(frontiers(kind))
    name = MergedName(
        lower, upper, data.draw(st.integers(0, 10**10 - 1)), data.draw(TOKENS), data.draw(st.none() | PARTS)
    )
    again = parse_merged(str(name), kind)
    assert again == MergedName(named(lower), named(upper), name.epoch, name.token, name.part)
    assert str(again) == str(name)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_a_changed_name_says_something_else_or_nothing(kind: TimeKind, data: st.DataObject) -> None:
    name = str(PendingName("w", data.draw(frontiers(kind)), data.draw(frontiers(kind))))
    at = data.draw(st.integers(0, len(name) - 1))
    other = name[:at] + data.draw(st.sampled_from("0159.+_hd/")) + name[at + data.draw(st.integers(0, 1)) :]
    parsed = parse_pending(other, kind)
    assert parsed is None or str(parsed) == other
    assert other == name or parsed != parse_pending(name, kind)


@given(st.integers(0, TIME_END), st.integers(0, TIME_END))
def test_names_of_numbers_sort_as_times_do(one: int, other: int) -> None:
    names = [frontier_name(Frontier([(number,)])) for number in (one, other)]
    assert (names[0] < names[1]) == (one < other)
    assert names[0] < frontier_name(DONE)
