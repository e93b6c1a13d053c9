"""Tables of a state's SSTs: what did not change is not made anew."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from msgspec import structs

from slate_async.engine.read.sources import LISTED_AT_ONCE
from slate_async.engine.read.sst_tables import Levels, SstTables, StoredRun
from slate_async.storage.manifest.sst_names import SstNames
from slate_async.storage.manifest.state import ManifestState, Parent, SortedRun, SstRef
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.locate import SstOpener
from tests.engine import memory_store, runtime

DATABASE = UUID(int=1)


def sst(name: str) -> SstRef:
    return SstRef(f"sst/{name}", name.encode(), 1000, 1, 0, b"a", b"z", 1, 1, 1)


def state_of(l0: str = "", *runs: SortedRun) -> ManifestState:
    state = ManifestState(database_id=DATABASE, log_protocol="contiguous", wal_enabled=True, created_ms=0)
    return replace(state, l0=tuple(map(sst, l0)), runs=runs)


def run_of(number: int, ssts: str) -> SortedRun:
    return SortedRun(number, tuple(map(sst, ssts)))


def tables() -> SstTables:
    store = memory_store()
    return SstTables(SstOpener(store, DATABASE, lambda path: store, BlockCache(0), runtime().offload))


def names(levels: Levels) -> list[str]:
    l0, runs = levels
    return [table.source.key[4:] for table in l0] + [
        "".join(table.source.key[4:] for table in run.tables) for run in runs
    ]


def test_shared_runs_and_ssts_are_the_same_objects() -> None:
    shown = tables()
    old, new = run_of(1, "ABC"), run_of(2, "DE")
    first = shown.levels(state_of("FG", new, old))
    second = shown.levels(state_of("HFG", new, old))
    assert (names(first), names(second)) == (["F", "G", "DE", "ABC"], ["H", "F", "G", "DE", "ABC"])
    assert second.l0[1:] == first.l0
    assert [one is other for one, other in zip(first.runs, second.runs, strict=True)] == [True, True]


def test_a_table_of_a_run_is_made_when_a_read_needs_it() -> None:
    shown = tables()
    ssts = tuple(
        structs.replace(sst(name), first_key=b"%c1" % ord(name), last_key=b"%c3" % ord(name)) for name in "ABCD"
    )
    [run] = shown.levels(state_of("", SortedRun(1, ssts))).runs
    assert isinstance(run, StoredRun)
    assert [run.find(key) for key in (b"@", b"B0", b"E")] == [None, None, None]
    assert (run.gap(b"B0"), run.first_from(b"B2"), run.within(b"A4", b"C1")) == ((b"A3\0", b"B1"), 1, range(1, 2))
    assert (run.reads("sst/D"), run.reads("sst/E"), run.expires) == (True, False, False)
    assert list(run.made) == []
    found = run.find(b"B3")
    assert found is not None
    assert found is run.find(b"B1") is run.table(1)
    assert [made.object_id for made, _ in run.made] == [b"B"]


def test_what_was_made_of_a_run_stays_with_the_run_that_follows_it() -> None:
    shown = tables()
    first = shown.levels(state_of("", run_of(1, "ABC"))).runs[0]
    made = first.table(1)
    second = shown.levels(state_of("", run_of(2, "BC"))).runs[0]
    assert isinstance(second, StoredRun)
    assert [table for _, table in second.made] == [made]
    assert (second.same_as(first), second.same_as(second)) == (False, True)


def test_an_sst_that_moves_keeps_its_reader() -> None:
    shown = tables()
    kept = run_of(1, "A")
    first = shown.levels(state_of("FG", run_of(2, "DE"), kept))
    assert names(first) == ["F", "G", "DE", "A"]
    second = shown.levels(state_of("F", run_of(3, "GDX"), kept))
    assert names(second) == ["F", "GDX", "A"]
    assert second.runs[0].tables[:2] == [first.l0[1], first.runs[0].tables[0]]
    assert second.runs[1] is first.runs[1]


def test_an_sst_of_which_less_counts_has_a_table_of_its_own_and_the_same_reader() -> None:
    shown = tables()
    cut = structs.replace(sst("A"), last_key=b"m")
    [before] = shown.levels(state_of("A")).l0
    [after] = shown.levels(replace(state_of(), l0=(cut,))).l0
    assert (after.last_key, after.source is before.source) == (b"m", True)


@pytest.mark.parametrize(
    "change",
    [{"global_seq": 7}, {"global_create_ms": 7}, {"location": "sst/B"}, {"size": 7}, {"database_id": UUID(int=2)}],
    ids=lambda change: next(iter(change)),
)
def test_an_sst_whose_rows_or_place_changed_has_a_reader_of_its_own(change: dict[str, object]) -> None:
    shown = tables()
    [before] = shown.levels(state_of("A")).l0
    changed = structs.replace(sst("A"), **change)
    [after] = shown.levels(replace(state_of(), l0=(changed,), parents=(Parent(UUID(int=2), "memory://"),))).l0
    assert after.source is not before.source


def test_names_within_others() -> None:
    shared = run_of(1, "AB")
    for some, others, expected in [
        (state_of("F", shared), state_of("GF", shared), True),
        (state_of("GF", shared), state_of("F", shared), False),
        (state_of("", shared), state_of(), False),
        (state_of("F", shared), state_of("", run_of(2, "FX"), shared), True),
        (state_of("", shared), state_of("", run_of(1, "BA")), True),
        (state_of("B"), state_of("", shared), True),
        (replace(state_of("B"), runs=(shared,)), state_of("", shared), True),
        (state_of("", run_of(2, "AC")), state_of("C", shared), True),
        (state_of("", run_of(2, "AC"), shared), state_of("", shared), False),
    ]:
        assert SstNames(some).within(SstNames(others)) is expected


def test_a_long_run_is_searched_right_while_its_keys_are_listed_in_steps() -> None:
    ssts = [
        SstRef(f"sst/{n}", b"%d" % n, 1000, 1, 0, b"%05d1" % n, b"%05d3" % n, 1, 1, 1)
        for n in range(3 * LISTED_AT_ONCE + 7)
    ]
    run = StoredRun(ssts, {}, lambda sst: pytest.fail("a table was made"))
    for n in (0, 1, LISTED_AT_ONCE, 3 * LISTED_AT_ONCE, 5, len(ssts) - 1, 2 * LISTED_AT_ONCE):
        assert [run.first_from(b"%05d%d" % (n, digit)) for digit in (1, 3, 4)] == [n, n, n + 1]
        assert run.find(b"%05d0" % n) is None
    assert run.first_from(b"9") == len(ssts)
    run = StoredRun(ssts, {}, lambda sst: pytest.fail("a table was made"))
    run.first_from(b"5")
    assert len(run._last_keys) == LISTED_AT_ONCE, "not all of them at once"
