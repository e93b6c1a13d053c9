"""The spine: which merges wait, what they wait for, and how an idle collection comes to rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slate_async.collections.core.area import Area, Fuel
from slate_async.collections.core.bounds import spanning
from slate_async.collections.core.edits import Absorb, ReplaceMerged
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.spine import Exertion, due, exert, has_room, idle_merge, plan, refuelled
from tests.support.merged_areas import area_of, at, merged, stacked


def planned(area: Area) -> list[str]:
    return ["+".join(merge.names) for merge in plan(area)]


@pytest.mark.parametrize(
    ("rows", "merges", "room"),
    [
        ((), [], True),
        ((8,), [], True),
        ((64, 8, 1), [], True),
        ((8, 7), ["b0+b1"], True),
        ((64, 8, 7, 1), ["b1+b2"], True),
        ((64, 60, 8, 7, 1, 1), ["b0+b1", "b2+b3", "b4+b5"], True),
        ((8, 7, 6), ["b0+b1+b2"], False),
        ((64, 8, 4, 2, 20), ["b1+b2+b3+b4"], False),
        ((16, 8, 4, 2, 20), ["b0+b1+b2+b3+b4"], False),
        ((64, 0, 16, 8), ["b1+b2"], False),
        ((8, 64, 32, 8, 8), ["b0+b1", "b3+b4"], False),
        ((0, 0), ["b0+b1"], True),
    ],
)
def test_a_batch_takes_in_older_ones_of_its_layer_and_below(
    rows: tuple[int, ...], merges: list[str], room: bool
) -> None:
    assert planned(stacked(*rows)) == merges
    assert has_room(stacked(*rows)) is room


def test_a_pair_waits_for_its_fuel_and_others_for_none() -> None:
    area = stacked(100, 100, 20, 20, 1, 1)
    fuelled = replace(area, fuel=(Fuel("b0", "b1", 199), Fuel("b2", "b3", 40), Fuel("b4", "b9", 99)))
    assert [merge.names for merge in due(area, ())] == []
    assert [merge.names for merge in due(fuelled, ())] == [("b2", "b3")]
    assert [merge.names for merge in due(stacked(100, 100, 100, 4, 4), ())] == [("b0", "b1", "b2")]


def test_merges_that_run_are_not_begun_again() -> None:
    area = stacked(8, 8, 8)
    assert [merge.names for merge in due(area, ("b0", "b1"))] == []
    assert [merge.names for merge in due(area, ("b7",))] == [("b0", "b1", "b2")]


def test_merges_that_hold_absorbing_up_come_first_then_small_ones() -> None:
    area = replace(stacked(500, 500, 40, 40, 5, 5, 5), fuel=(Fuel("b0", "b1", 1000), Fuel("b2", "b3", 80)))
    assert [merge.rows for merge in due(area, ())] == [15, 80, 1000]


def test_an_absorbed_batch_grants_fuel_to_every_pair_but_not_more_than_it_needs() -> None:
    area = replace(stacked(100, 100, 20, 20, 4), fuel=(Fuel("b0", "b1", 7), Fuel("gone", "b9", 3)))
    assert refuelled(area).fuel == (Fuel("b0", "b1", 7),)
    grown = refuelled(area, merged("x", 0, 1, 3))
    assert grown.fuel == (Fuel("b0", "b1", 7 + 32), Fuel("b2", "b3", 32))
    again = refuelled(grown, merged("x", 0, 1, 3))
    assert again.fuel == (Fuel("b0", "b1", 71), Fuel("b2", "b3", 40))
    assert again.version == area.version
    assert refuelled(again) is again


@pytest.mark.parametrize(
    ("area", "target", "names"),
    [
        (stacked(), at(9), None),
        (stacked(64, 8, 1), at(9), ("b1", "b2")),
        (stacked(64, 60, 8, 7, 1), at(9), ("b2", "b3")),
        (area_of([merged("a", 0, 5, 9, times=3)]), at(5), ("a",)),
        (area_of([merged("a", 0, 5, 9, times=3)]), at(4), ("a",)),
        (area_of([merged("a", 0, 5, 9, times=3)]), at(3), None),
        (area_of([merged("a", 0, 5, 9, times=1)]), at(5), None),
        (area_of([merged("a", 0, 5, 9, times=3, since=at(5))]), at(5), None),
    ],
)
def test_an_idle_collection_comes_to_one_batch_that_is_compacted_once(
    area: Area, target: Frontier, names: tuple[str, ...] | None
) -> None:
    merge = idle_merge(area, target)
    assert (None if merge is None else merge.names) == names


def test_a_closed_collection_comes_to_rest() -> None:
    """Nobody knows its last time: it is compacted while it has several, once since has moved on."""
    closed = merged("a", 0, 5, 9, times=3)
    closed = replace(closed, bounds=replace(closed.bounds, upper=DONE))
    ready = idle_merge(area_of([closed]), at(99))
    assert ready is not None
    assert ready.names == ("a",)
    assert idle_merge(area_of([replace(closed, bounds=closed.bounds.compacted(at(99)))]), at(99)) is None
    assert idle_merge(area_of([replace(closed, times=1)]), at(99)) is None


def test_empty_batches_bring_fuel_and_take_no_room() -> None:
    """Time goes on without updates: the merge of what is there gets done all the same."""
    area, absorbed = stacked(64, 60), 0
    while not (ready := [merge for merge in due(area, ()) if merge.rows]):
        empty = merged(f"e{absorbed}", 2 + absorbed, 3 + absorbed, 0, diff_sum=0)
        area = Absorb(1, empty, "").apply(replace(area, epoch=1)) or area
        for merge in due(area, ()):
            if not merge.rows:
                bounds = spanning([batch.bounds for batch in merge.batches])
                output = replace(merged(f"m{absorbed}", 0, 0, 0, diff_sum=0), bounds=bounds)
                area = ReplaceMerged(1, merge.names, output).apply(area) or area
        absorbed += 1
        assert has_room(area)
        assert len(area.batches) <= 4
    assert ready[0].names == ("b0", "b1")
    assert absorbed == (64 + 60 + 7) // 8


def test_an_idle_merge_runs_when_all_its_rows_are_paid_for() -> None:
    area = stacked(64, 30, 10)
    saved, merge = exert(area, at(0), None, 15)
    assert (saved, merge) == (Exertion(("b1", "b2"), 15), None)
    saved, merge = exert(area, at(0), saved, 15)
    assert merge is None
    saved, merge = exert(area, at(0), saved, 15)
    assert merge is not None
    assert merge.names == ("b1", "b2")


def test_what_comes_in_takes_the_savings_of_another_merge() -> None:
    """Else a row now and then would have everything rewritten each time."""
    saved, _ = exert(stacked(64, 30), at(0), None, 93)
    assert exert(stacked(64, 30, 10), at(0), saved, 1) == (Exertion(("b1", "b2"), 1), None)


def test_nothing_is_saved_at_rest() -> None:
    assert exert(stacked(64), at(0), Exertion(("b0", "b1"), 7), 15) == (None, None)
