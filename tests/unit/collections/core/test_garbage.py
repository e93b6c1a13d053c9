"""What may be deleted: below the lowest version needed, named by none, in flight nowhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slate_async.collections.core.area import Area
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.garbage import (
    Listed,
    MergedFile,
    PendingFile,
    Picture,
    Wanted,
    Why,
    lowest_needed,
)
from slate_async.collections.core.names import HashedFrontier, NamedFrontier
from tests.support.merged_areas import ZERO, area_of, at, merged

OLD = replace(area_of([merged("a", 0, 3)]), version=7)
MIDDLE = replace(area_of([merged("ab", 0, 5)]), version=8)
HEAD = replace(area_of([merged("abc", 0, 9)]), version=9)
FILES = tuple(MergedFile(f"{name}-key", name, 1, at(9)) for name in ("a", "ab", "abc", "lost"))


def wanted(lowest: int, *, in_flight: frozenset[str] = frozenset(), head: Area = HEAD) -> Wanted:
    return Listed(lowest, FILES, in_flight).at(head)


def picture(lowest: int, *, in_flight: frozenset[str] = frozenset()) -> Picture:
    found = Picture.of(wanted(lowest, in_flight=in_flight), {7: OLD, 8: MIDDLE})
    assert found is not None
    return found


@pytest.mark.parametrize(("floor", "held", "lowest"), [(5, [], 5), (5, [7], 5), (5, [3, 7], 3), (9, [9], 9)])
def test_versions_are_needed_from_what_was_published_or_is_held(floor: int, held: list[int], lowest: int) -> None:
    """C17."""
    assert lowest_needed(replace(HEAD, floor=floor), held) == lowest


def test_no_version_of_a_deleted_collection_is_needed() -> None:
    assert lowest_needed(replace(HEAD, deleted=True), [3]) == 9


@pytest.mark.parametrize(("lowest", "versions"), [(7, [7, 8]), (9, []), (8, [8]), (0, [1, 2, 3, 4, 5, 6, 7, 8])])
def test_every_version_up_to_the_head_is_read(lowest: int, versions: list[int]) -> None:
    """C24; version 0 is not stored."""
    assert list(wanted(lowest).versions) == versions


def test_a_version_that_is_missing_ends_the_round() -> None:
    """C24: it is not one without batches."""
    assert Picture.of(wanted(7), {7: OLD, 8: None}) is None
    assert Picture.of(wanted(7), {8: MIDDLE}) is None


@pytest.mark.parametrize(
    ("lowest", "dead"), [(7, {"lost-key"}), (8, {"a-key", "lost-key"}), (9, {"a-key", "ab-key", "lost-key"})]
)
def test_files_that_no_needed_version_names_are_garbage(lowest: int, dead: set[str]) -> None:
    found = list(picture(lowest).dead_merged(1))
    assert {garbage.key for garbage in found} == dead
    assert {garbage.why for garbage in found} == {Why.UNREACHABLE}


def test_files_in_flight_and_of_later_epochs_stay() -> None:
    """C22, C23. A part stands and falls with its batch."""
    assert list(picture(7, in_flight=frozenset({"lost"})).dead_merged(1)) == []
    assert list(picture(7).dead_merged(0)) == []
    part = MergedFile("lost-key.p1", "lost", 1, at(9))
    parts = replace(picture(7), listed=Listed(7, (part, replace(part, key="ab.p1", batch="ab")), frozenset()))
    assert [garbage.key for garbage in parts.dead_merged(1)] == ["lost-key.p1"]


@pytest.mark.parametrize(
    ("upper", "dead"),
    [(at(5), True), (at(9), True), (at(10), False), (DONE, False), (HashedFrontier("0" * 32), False)],
)
def test_files_that_end_beyond_the_head_stay(upper: NamedFrontier, dead: bool) -> None:
    """C30: a version that was lost may have named them."""
    files = (MergedFile("lost-key", "lost", 1, upper), MergedFile("lost-key.p1", "lost", 1, upper))
    found = replace(picture(7), listed=Listed(7, files, frozenset()))
    assert [garbage.key for garbage in found.dead_merged(1)] == ["lost-key", "lost-key.p1"] * dead


def test_a_file_is_read_whose_name_does_not_say_where_it_ends() -> None:
    """C30. Nobody reads what a needed version names, what is in flight, or anything of a closed collection."""
    files = tuple(replace(file, upper=HashedFrontier("0" * 32)) for file in FILES)
    found = replace(picture(8), listed=Listed(8, files, frozenset({"lost"})))
    assert found.unread(1) == [files[0]]
    assert list(found.dead_merged(1)) == []
    read = found.after_reading([replace(files[0], upper=at(3))])
    assert read.unread(1) == []
    assert [garbage.key for garbage in read.dead_merged(1)] == ["a-key"]
    closed = replace(found, head=replace(HEAD, upper=DONE))
    assert closed.unread(1) == []
    assert [garbage.key for garbage in closed.dead_merged(1)] == ["a-key"]


@pytest.mark.parametrize(("upper", "dead"), [(2, True), (3, True), (4, False), (9, False)])
def test_definite_batches_go_when_the_lowest_version_covers_them(upper: int, dead: bool) -> None:
    """C5, C25: the lowest one, not the head; by both bounds that the name says."""
    found = list(picture(7).dead_pending([PendingFile("p", ZERO, at(upper))]))
    assert [garbage.why for garbage in found] == [Why.MERGED] * dead


@pytest.mark.parametrize(("lower", "dead"), [(0, True), (2, True), (3, False), (5, False)])
def test_compare_batches_go_when_they_begin_before_it_ends(lower: int, dead: bool) -> None:
    """C5, C7: by the lower bound alone."""
    found = list(picture(7).dead_pending([PendingFile("p", at(lower), None)]))
    assert [garbage.why for garbage in found] == [Why.STALE] * dead


def test_nothing_pending_is_garbage_while_version_zero_is_needed() -> None:
    first = Listed(0, (), frozenset()).at(replace(HEAD, version=1))
    found = Picture.of(first, {})
    assert found is not None
    assert list(found.dead_pending([PendingFile("p", ZERO, at(1)), PendingFile("q", ZERO, None)])) == []


def test_of_a_deleted_collection_the_head_stays() -> None:
    tombstone = replace(HEAD, version=12, upper=DONE, since=DONE, bound=DONE, batches=(), floor=12, deleted=True)
    found = Picture.of(wanted(lowest_needed(tombstone, [7]), head=tombstone), {})
    assert found is not None
    assert len(list(found.dead_merged(1))) == len(FILES)
    pending = [PendingFile("p", at(90), at(99)), PendingFile("q", Frontier([(2, 0), (0, 2)]), None)]
    assert len(list(found.dead_pending(pending))) == 2
    assert [garbage.key for garbage in found.old_versions([(11, "v11"), (12, "v12")])] == ["v11"]


def test_old_versions_go_oldest_first() -> None:
    """C27."""
    stored = [(9, "v9"), (8, "v8"), (6, "v6"), (7, "v7")]
    assert [(garbage.key, garbage.why) for garbage in picture(8).old_versions(stored)] == [
        ("v6", Why.OLD_VERSION),
        ("v7", Why.OLD_VERSION),
    ]
