"""Where the log ends, found by looking only: everything acknowledged before the look, whatever goes on meanwhile."""

from __future__ import annotations

from uuid import UUID

import pytest

from slate_async.errors import ConfigError, CorruptionError, InvalidError, UnavailableError
from slate_async.storage.log.extent import LogExtent, find_extent, log_keys
from slate_async.storage.log.names import PREFIX
from slate_async.storage.log.recovery import EpochRange
from slate_async.storage.log.register import WriterRegister
from slate_async.storage.manifest.state import ManifestState
from tests.unit.storage.log.shelf import Shelf, Step


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def prefixed() -> Shelf:
    return Shelf("epoch_prefixed")


async def extent(shelf: Shelf) -> LogExtent:
    register = None if shelf.protocol == "contiguous" else shelf.register
    return await find_extent(shelf.store, shelf.load_head, register)


# ---- contiguous


async def test_an_empty_log_ends_before_its_start(shelf: Shelf) -> None:
    shelf.claim(1, log_start=4)
    assert await extent(shelf) == LogExtent(3)


async def test_it_ends_at_the_last_id_without_a_gap_never_at_the_largest(shelf: Shelf) -> None:
    shelf.lay("1.2", "1.3", "1.4", "1.6")
    shelf.claim(1, log_start=3, fence_width=4)
    assert await extent(shelf) == LogExtent(4)


async def test_no_object_is_read_for_it(shelf: Shelf) -> None:
    shelf.lay("1.1", "2.2|", "1.3")
    shelf.claim(2, fence_width=2)
    assert await extent(shelf) == LogExtent(3)
    assert shelf.store.gets == []


async def test_a_log_that_was_compacted_and_collected_meanwhile_is_looked_at_anew(shelf: Shelf) -> None:
    """The head still names 1 when the listing finds only what was written since."""
    shelf.lay("1.1", "1.2", "1.3", "1.4")
    shelf.claim(1, fence_width=9)

    def collect() -> None:
        shelf.remove("1.1", "1.2", "1.3")
        shelf.commit(log_start=4)

    shelf.store.script("list", PREFIX, Step(before=collect))
    assert await extent(shelf) == LogExtent(4)
    assert shelf.store.lists == 2


async def test_a_gap_no_window_explains_is_a_lost_object_unless_the_log_moved(shelf: Shelf) -> None:
    shelf.lay("1.1", "1.5")
    shelf.claim(1, fence_width=2)
    with pytest.raises(CorruptionError, match="missing, though"):
        await extent(shelf)
    shelf.store.script("list", PREFIX, Step(before=lambda: shelf.commit(log_start=5)))
    assert await extent(shelf) == LogExtent(5)


async def test_a_gap_in_another_place_is_no_lost_object(shelf: Shelf) -> None:
    """The marker is read when the object was missed, and not before."""
    shelf.lay("1.1", "1.5")
    shelf.claim(1, fence_width=2)
    asked: list[ManifestState] = []

    async def check_place(state: ManifestState) -> None:
        asked.append(state)
        raise ConfigError("is not the place")

    with pytest.raises(ConfigError):
        await find_extent(shelf.store, shelf.load_head, None, check_place)
    assert asked == [shelf.head]


async def test_a_gap_of_a_database_that_was_recreated_is_none_of_the_new_ones(shelf: Shelf) -> None:
    shelf.lay("1.1", "1.5")
    shelf.claim(1, fence_width=2)

    def make_again() -> None:
        shelf.remove("1.1", "1.5")
        shelf.commit(database_id=UUID(int=7))

    shelf.head_steps = [lambda: None, make_again]
    assert await extent(shelf) == LogExtent(0)


async def test_nor_is_it_lost_if_a_newer_writers_window_is_wider(shelf: Shelf) -> None:
    shelf.lay("1.1", "2.5")
    shelf.claim(1, fence_width=2)
    shelf.store.script("list", PREFIX, Step(before=lambda: shelf.commit(writer_epoch=2, fence_width=8)))
    assert await extent(shelf) == LogExtent(1)


async def test_nor_if_the_listing_overtook_its_put(shelf: Shelf) -> None:
    """Pages of a listing follow one another in time: the second one may show what came after the first."""
    shelf.lay("1.1", "1.5")
    shelf.claim(1, fence_width=2)
    found = shelf.store.head

    async def head(key: str):  # type: ignore[no-untyped-def]
        shelf.lay("1.2", "1.3", "1.4")
        return await found(key)

    shelf.store.head = head  # type: ignore[method-assign]
    assert await extent(shelf) == LogExtent(5)


async def test_a_log_that_never_stands_still_is_given_up(shelf: Shelf) -> None:
    shelf.claim(1)
    shelf.head_steps = [lambda: shelf.commit(log_start=shelf.head.log_start + 1)] * 100  # type: ignore[union-attr]
    with pytest.raises(UnavailableError, match="moved"):
        await extent(shelf)


async def test_without_a_database_there_is_no_log(shelf: Shelf) -> None:
    with pytest.raises(InvalidError, match="no database"):
        await extent(shelf)


# ---- epoch-prefixed


async def test_the_register_says_where_it_ends_and_whose_it_is(prefixed: Shelf) -> None:
    prefixed.lay("1.1", "1.2", "2.3", "2.4")
    prefixed.claim(3)
    prefixed.register.place(WriterRegister(2, "t", (EpochRange(1, 1, 2), EpochRange(2, 3)), 3))
    assert await extent(prefixed) == LogExtent(3, ((1, 1), (2, 3)))


async def test_a_register_that_was_never_written_is_an_empty_log(prefixed: Shelf) -> None:
    prefixed.claim(1)
    assert await extent(prefixed) == LogExtent(0)


async def test_a_register_made_between_two_looks_is_read_again(prefixed: Shelf) -> None:
    prefixed.claim(1)

    def begin() -> None:
        prefixed.register.place(WriterRegister(1, "t", (EpochRange(1, 1),), 1))
        prefixed.lay("1.1")

    prefixed.store.script("list", PREFIX, Step(before=begin))
    assert await extent(prefixed) == LogExtent(1, ((1, 1),))


async def test_a_lost_register_is_corruption(prefixed: Shelf) -> None:
    prefixed.lay("1.1")
    prefixed.claim(1)
    with pytest.raises(CorruptionError, match="writer register"):
        await extent(prefixed)


# ---- names


def test_positions_have_keys_by_their_owners() -> None:
    assert [key for _, key in log_keys("contiguous", (), 9, 10)] == [f"log/{9:020}.sst", f"log/{10:020}.sst"]
    assert log_keys("epoch_prefixed", ((1, 1), (4, 3)), 2, 3) == [
        (2, f"log/{1:018}.{2:018}.sst"),
        (3, f"log/{4:018}.{3:018}.sst"),
    ]
    assert log_keys("epoch_prefixed", (), 5, 4) == []
    with pytest.raises(CorruptionError, match="no epoch owns position 2"):
        log_keys("epoch_prefixed", ((4, 3),), 2, 3)
