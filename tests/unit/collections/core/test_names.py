"""Names of objects, and back; foreign names are nobody's."""

from __future__ import annotations

from typing import Any

import pytest

from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.names import (
    EPOCH_END,
    PARTS_END,
    HashedFrontier,
    MergedName,
    PendingName,
    check_name,
    frontier_name,
    hold_name,
    parse_hold,
    parse_merged,
    parse_pending,
    shard_prefix,
)
from slate_async.collections.core.times import TIME_END, TimeKind
from slate_async.errors import InvalidError
from slate_async.objectstore.keys import check_key

U64, PAIR = TimeKind.U64, TimeKind.U64X2
TOKEN = "0123456789abcdef" * 2
FIVE, NINE = Frontier([(5,)]), Frontier([(9,)])
STAIRS = Frontier([(3, 0), (0, 5)])
LARGE = Frontier([(10**18 + n, 10**18 - n) for n in range(4)])


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        (U64, PendingName("relay-a", FIVE, NINE), "relay-a/batch_00000000000000000005_00000000000000000009"),
        (U64, PendingName("relay-a", FIVE, DONE), "relay-a/batch_00000000000000000005_done"),
        (U64, PendingName("w", FIVE, Frontier([(TIME_END,)])), "w/batch_00000000000000000005_09223372036854775808"),
        (U64, PendingName("main", FIVE, None), "main/batch_00000000000000000005"),
        (U64, PendingName("main", FIVE, None, TOKEN, 7), f"main/batch_00000000000000000005.{TOKEN}.p00007"),
        (PAIR, PendingName("w", STAIRS, DONE, TOKEN, 9999), f"w/batch_0.5+3.0_done.{TOKEN}.p09999"),
        (PAIR, PendingName("main", STAIRS, None), "main/batch_0.5+3.0"),
        (PAIR, PendingName("w", STAIRS, HashedFrontier(TOKEN)), f"w/batch_0.5+3.0_h{TOKEN}"),
        (PAIR, PendingName("main", DONE, None), "main/batch_done"),
    ],
)
def test_names_of_pending_batches(kind: TimeKind, name: PendingName, text: str) -> None:
    assert str(name) == f"pending_batches/{text}"
    assert parse_pending(str(name), kind) == name
    assert str(name).startswith(shard_prefix(name.writer))
    assert parse_merged(str(name), kind) is None


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        (U64, MergedName(FIVE, NINE, 3, TOKEN), f"00000000000000000005_00000000000000000009.0000000003.{TOKEN}"),
        (U64, MergedName(FIVE, DONE, 3, TOKEN, 0), f"00000000000000000005_done.0000000003.{TOKEN}.p00000"),
        (PAIR, MergedName(STAIRS, STAIRS, 10**10 - 1, TOKEN), f"0.5+3.0_0.5+3.0.9999999999.{TOKEN}"),
    ],
)
def test_names_of_merged_batches(kind: TimeKind, name: MergedName, text: str) -> None:
    assert str(name) == f"merged_batches/batch_{text}"
    assert parse_merged(str(name), kind) == name
    assert parse_pending(str(name), kind) is None


def test_a_long_frontier_is_hashed() -> None:
    text = frontier_name(LARGE)
    assert len(text) == 33
    assert text == frontier_name(Frontier(reversed(LARGE.elements)))
    assert text != frontier_name(LARGE.join(Frontier([(10**18 + 1, 0)])))
    name = PendingName("w", STAIRS, LARGE)
    assert parse_pending(str(name), PAIR) == PendingName("w", STAIRS, HashedFrontier(text[1:]))
    assert str(parse_pending(str(name), PAIR)) == str(name)


def test_the_longest_names_are_keys() -> None:
    longest = Frontier([(10**15, 10**16), (10**16, 10**15)]), Frontier([(10**16, 10**16 + 1), (10**16 + 1, 10**15)])
    assert [len(frontier_name(frontier)) for frontier in longest] == [69, 70]
    check_key(str(MergedName(longest[1], longest[1], EPOCH_END - 1, TOKEN, PARTS_END - 1)))
    check_key(str(PendingName("w" * 64, longest[1], longest[1], TOKEN, PARTS_END - 1)))
    assert len(frontier_name(Frontier([(10**16, 10**16 + 1), (10**16 + 1, 10**16)]))) == 33


@pytest.mark.parametrize(
    "text",
    [
        "",
        "w/batch_5_9",
        "w/batch_00000000000000000005",
        "w/batch_00000000000000000009_00000000000000000005/x",
        "w/batch_00000000000000000005_09223372036854775809",
        "w/batch_00000000000000000005_done.p00001",
        f"w/batch_00000000000000000005_done.{TOKEN}",
        f"w/batch_00000000000000000005_done.{TOKEN}.p1",
        f"w/batch_00000000000000000005_done.{TOKEN}.p10000",
        f"w/batch_00000000000000000005_done.{TOKEN.upper()}.p00001",
        "W/batch_00000000000000000005_done",
        "w_/batch_00000000000000000005_done",
        f"{'w' * 65}/batch_00000000000000000005_done",
        "w/batch_00000000000000000005_done\n",
        "w/batch_٠0000000000000000005_done",
        "w/batch_h5_done",
        "w/batch_1.2_done",
        "main/batch_0000000000000000005",
        "main/batch_5.",
        "main/batch_..",
    ],
)
def test_foreign_names_are_not_pending_batches(text: str) -> None:
    assert parse_pending(f"pending_batches/{text}", U64) is None
    assert parse_pending(text, U64) is None


@pytest.mark.parametrize(
    "text", ["3.0+0.5_done", "0.5+3.1+0.5_done", "0.5+1.6_done", "00.5_done", "5_done", "0.5+_done"]
)
def test_pairs_are_named_as_antichains_in_order(text: str) -> None:
    assert parse_pending(f"pending_batches/w/batch_{text}", PAIR) is None


@pytest.mark.parametrize(
    "text",
    [
        f"5_9.0000000003.{TOKEN}",
        f"done_09.0000000003.{TOKEN}",
        "9_5.0000000003.x",
        f"done_done.3.{TOKEN}",
        f"done.0000000003.{TOKEN}",
        "done_done",
    ],
)
def test_foreign_names_are_not_merged_batches(text: str) -> None:
    assert parse_merged(f"merged_batches/batch_{text}", U64) is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: str(PendingName("W", FIVE, NINE)), "'W' is no name of a writer: that takes 1 to 64 of a-z, 0-9 and -"),
        (lambda: str(PendingName("w", FIVE, None)), "compare appends go to the shard main, not 'w'"),
        (lambda: str(PendingName("w", FIVE, NINE, TOKEN)), "has a token and a number"),
        (lambda: str(PendingName("w", FIVE, NINE, TOKEN, 10000)), "part 10000 is outside"),
        (lambda: str(PendingName("w", FIVE, NINE, "x", 1)), "'x' is no token"),
        (lambda: str(MergedName(FIVE, NINE, 10**10, TOKEN)), "epoch 10000000000 is outside"),
        (lambda: hold_name(""), "'' is no name of a reader"),
        (lambda: check_name("a/b", "collection"), "'a/b' is no name of a collection"),
    ],
)
def test_what_has_no_name_is_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        make()


def test_names_of_holds() -> None:
    assert hold_name("billing-2") == "readers/billing-2/hold"
    assert parse_hold("readers/billing-2/hold") == "billing-2"
    for name in ("readers/billing-2/held", "readers/B/hold", "readers//hold", "x/readers/b/hold"):
        assert parse_hold(name) is None
