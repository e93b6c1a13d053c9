"""What a compactor may take of a log without a WAL: nothing of a zombie's, nothing uncommitted, nothing that moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from metastores.memory import MemoryRegister
from metastores.protocol import Committed, VersionRef
from slate_async.engine.compaction.log_source import LogLook, LogSource
from slate_async.errors import ConfigError, CorruptionError, InvalidError, UnavailableError
from slate_async.objectstore.memory import MemoryStore
from slate_async.storage.format.log_segment import encode_fence, log_object_id
from slate_async.storage.format.sst_builder import SstBuilder
from slate_async.storage.log.names import contiguous_key, epoch_key
from slate_async.storage.log.reader import LogReader
from slate_async.storage.log.recovery import EpochRange
from slate_async.storage.log.register import WriterRegister, encode
from slate_async.storage.manifest.state import ManifestState
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.locate import SstOpener
from tests.engine import InlineOffload, memory_store
from tests.support.rows import R, columns_of

DATABASE = UUID(int=5)


class Place:
    """A log laid out by hand, and the head that stands beside it."""

    def __init__(self, protocol: str = "contiguous", **state: int) -> None:
        self.store: MemoryStore = memory_store()
        self.register = MemoryRegister()
        self.head: ManifestState | None = ManifestState(
            DATABASE,
            protocol,  # type: ignore[arg-type]
            False,
            0,
            ref=VersionRef(3, "3" * 32),
            fence_width=2,
            **state,
        )
        self.head_steps: list[Callable[[], object]] = []
        ssts = SstOpener(self.store, DATABASE, lambda name: self.store, BlockCache(0), InlineOffload())
        reader = LogReader(self.store, DATABASE, whole=False)
        register = None if protocol == "contiguous" else self.register
        self.mounted = True
        self.source = LogSource(self.store, ssts, reader, register, self._load, self._check_place)

    async def _load(self) -> ManifestState | None:
        if self.head_steps:
            self.head_steps.pop(0)()
        return self.head

    async def _check_place(self, state: ManifestState) -> None:
        if not self.mounted:
            raise ConfigError("is not the place")

    def move_start(self, to: int) -> None:
        assert self.head is not None
        self.head = replace(self.head, log_start=to)

    async def sst(self, position: int, epoch: int, *, key: str | None = None) -> None:
        """An SST of one row, whose sequence number is ten times its position."""
        builder = SstBuilder(
            database_id=DATABASE, object_id=log_object_id(position), writer_epoch=epoch, manifest_version=1
        )
        builder.add(columns_of([R(b"k%d" % position, b"v", seq=10 * position, create_ms=position)]))
        await self.store.put(key or contiguous_key(position), builder.finish().buffers)

    async def fence(self, position: int, epoch: int) -> None:
        data = encode_fence(database_id=DATABASE, log_id=position, epoch=epoch, manifest_version=1)
        await self.store.put(contiguous_key(position), data)

    async def commit_register(self, last_written: int, *ranges: EpochRange) -> None:
        value = encode(WriterRegister(ranges[-1].epoch, "me", ranges, last_written))
        assert isinstance(await self.register.compare_and_set(None, value), Committed)

    async def look(self, limit: int = 100) -> LogLook:
        return await self.source.look(limit=limit)


def positions(look: LogLook) -> list[int]:
    return [log_sst.position for log_sst in look.ssts]


async def test_what_lies_there_without_a_gap_and_what_a_commit_says_of_it() -> None:
    place = Place(log_start=3)
    for position in (1, 3, 4, 5, 7):
        await place.sst(position, 1)
    look = await place.look()
    assert (positions(look), look.end) == ([3, 4, 5], 5)
    assert (look.taken.start, look.taken.floor, look.taken.last_seq, look.taken.last_tick_ms) == (3, 1, 50, 5)
    assert look.ssts[0].ref.first_key == b"k3"
    assert positions(await place.look(limit=2)) == [3, 4]


async def test_fences_are_passed_over_and_zombies_behind_them_left_out() -> None:
    place = Place(log_start=1)
    await place.sst(1, 1)
    await place.fence(2, 2)
    await place.sst(3, 1)  # put by the fenced writer into the window
    await place.sst(4, 2)
    look = await place.look()
    assert (positions(look), look.end, look.taken.floor) == ([1, 4], 4, 2)
    assert (await place.look(limit=2)).taken.floor == 2, "the fence counts although it holds no rows"


async def test_the_manifest_says_which_epochs_were_seen_below_the_start() -> None:
    place = Place(log_start=3, log_floor=2)
    await place.sst(3, 1)
    await place.sst(4, 2)
    assert positions(await place.look()) == [4]


async def test_an_older_writers_object_between_a_claim_and_its_fence_counts() -> None:
    place = Place(log_start=1, writer_epoch=2)
    await place.sst(1, 1)
    assert positions(await place.look()) == [1]


async def test_a_log_that_moved_under_the_look_is_looked_at_anew() -> None:
    place = Place(log_start=1)
    for position in (1, 2, 3):
        await place.sst(position, 1)
    place.head_steps = [lambda: None, lambda: None, lambda: None, lambda: place.move_start(3)]
    look = await place.look()
    assert (positions(look), look.state.log_start) == ([3], 3)
    assert place.head_steps == []


async def test_a_log_that_moves_for_ever_is_given_up() -> None:
    place = Place(log_start=1)

    def move() -> None:
        assert place.head is not None
        place.move_start(place.head.log_start + 1)

    place.head_steps = [move] * 1000
    with pytest.raises(UnavailableError):
        await place.look()


async def test_what_is_no_sst_is_corrupt_and_no_database_is_said() -> None:
    place = Place(log_start=1)
    await place.sst(1, 1)
    await place.store.put(contiguous_key(1), b"x" * 200)
    with pytest.raises(CorruptionError, match="log/"):
        await place.look()
    place.head = None
    with pytest.raises(InvalidError, match="no database"):
        await place.look()


async def test_objects_are_read_once() -> None:
    place = Place(log_start=1)
    await place.sst(1, 1)
    first = await place.look()
    await place.sst(1, 9)  # never happens; a second read would show it
    assert await place.look() == first


async def test_nothing_past_what_is_committed_and_each_position_of_its_epoch() -> None:
    place = Place("epoch_prefixed", log_start=2)
    for position, epoch in ((2, 1), (3, 1), (4, 1), (4, 2), (5, 2), (6, 2)):
        await place.sst(position, epoch, key=epoch_key(epoch, position))
    await place.commit_register(5, EpochRange(1, 1, 3), EpochRange(2, 4))
    look = await place.look()
    assert [log_sst.ref.location for log_sst in look.ssts] == [
        epoch_key(*position) for position in ((1, 2), (1, 3), (2, 4), (2, 5))
    ]
    assert (look.end, look.taken.floor) == (5, 2)


async def test_a_committed_object_that_is_missing_is_corruption() -> None:
    place = Place("epoch_prefixed", log_start=2)
    await place.sst(2, 1, key=epoch_key(1, 2))
    await place.commit_register(3, EpochRange(1, 1))
    with pytest.raises(CorruptionError, match=epoch_key(1, 3)):
        await place.look()
    place.mounted = False
    with pytest.raises(ConfigError):
        await place.look()
