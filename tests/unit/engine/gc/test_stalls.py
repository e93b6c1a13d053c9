"""Compactions that nobody goes on with: noted, given up with the role of their compactor, and only then garbage."""

from __future__ import annotations

from uuid import UUID

import pytest

from slate_async.engine.gc.report import GcReport
from slate_async.engine.gc.stalls import Stall, parse_stall, revise_stalls, stands_since
from slate_async.errors import FencedError
from slate_async.storage.manifest.edits.compactions import (
    ClaimCompactor,
    CommitCompaction,
    FinishRange,
    RegisterCompaction,
    ReleaseCompactor,
    work_mark,
)
from slate_async.storage.manifest.state import Compaction, ManifestState, RangeOutput, SstRef
from tests.engine import START_MS
from tests.unit.engine.gc.test_sweeper import MIN_AGE, STALLED, Place

ONE = UUID(int=1)
A, B = "0" * 20 + "." + "a" * 16, "0" * 20 + "." + "b" * 16


def test_names_there_and_back() -> None:
    stall = Stall(A, START_MS)
    assert parse_stall(stall.key) == stall
    for other in (stall.key + "0", "gc/heads/00000000000000000007.001750000000000", "gc/compactors/", "gc/probe/x"):
        assert parse_stall(other) is None


def test_the_oldest_note_of_the_very_work_counts() -> None:
    known = [Stall(B, 50), Stall(A, 300), Stall(A, 200)]
    assert stands_since(known, A, 400, 10) == 200
    assert stands_since([Stall(B, 50)], A, 400, 10) == 400
    assert stands_since([Stall(A, 411)], A, 400, 10) == 400, "a clock that was ahead"
    changes = revise_stalls(known, A, 400, 10)
    assert (changes.add, changes.remove) == ((), (Stall(B, 50).key, Stall(A, 300).key))
    assert revise_stalls([Stall(B, 50)], A, 400, 10) == ((Stall(A, 400).key,), (Stall(B, 50).key,))
    assert revise_stalls(known, "", 400, 10) == ((), tuple(stall.key for stall in known))


@pytest.fixture
async def place() -> Place:
    """A database with a compaction that was registered, and no round since."""
    made = Place()
    await made.put(b"a", b"b", b"c")
    claimed = await made.commit(ClaimCompactor("t"))
    l0 = tuple(sst.object_id for sst in claimed.l0)
    one = Compaction(ONE, 1, claimed.version, 0, 0, True, l0, (), claimed.last_run_id + 1, 0, bounds=(b"b", b"c"))
    await made.commit(RegisterCompaction(one))
    return made


async def finish(place: Place, index: int) -> str:
    """Put a part's output, and note it."""
    [one] = (await place.head()).compactions
    key = await place.orphan(one.base_version)
    sst = SstRef(key, bytes([index]) * 16, 6, 1, 0, b"a", b"a", 1, 1, writer_epoch=1)
    await place.commit(FinishRange(1, ONE, RangeOutput(index, (sst,))))
    return key


async def later(place: Place, ms: int) -> GcReport:
    """A round of another process, ``ms`` later."""
    place.clock.wall_ms += ms
    return await place.collector().sweep()


async def test_a_compactor_that_stands_still_loses_the_work_and_the_role(place: Place) -> None:
    output = await finish(place, 0)
    assert (await later(place, 0)).evicted == ()
    assert len(await place.keys("gc/compactors/")) == 1
    assert (await later(place, STALLED - 1)).evicted == ()
    assert output in await place.keys("sst/")
    assert (await later(place, 1)).evicted == (ONE,)
    head = await place.head()
    assert (head.compactor_epoch, head.compactor_token, head.compactions) == (2, "", ())
    with pytest.raises(FencedError):
        await place.commit(CommitCompaction(1, ONE))
    with pytest.raises(FencedError):
        await place.commit(FinishRange(1, ONE, RangeOutput(1, ())))
    for _ in range(3):
        await later(place, MIN_AGE)
    assert output not in await place.keys("sst/")
    assert await place.keys("gc/") == []
    assert await place.read(b"a", b"b", b"c") == [b"value of a", b"value of b", b"value of c"]


async def test_a_compactor_that_finishes_a_part_now_and_then_is_left_alone(place: Place) -> None:
    outputs = []
    for index in range(2):
        assert (await later(place, STALLED - 1)).evicted == ()
        outputs.append(await finish(place, index))
    assert (await later(place, STALLED - 1)).evicted == ()
    assert {*outputs} <= {*await place.keys("sst/")}
    assert len((await place.head()).compactions[0].finished) == 2


async def test_work_that_is_resumed_has_all_the_time_anew(place: Place) -> None:
    await later(place, 0)
    await place.commit(ClaimCompactor("another"))
    assert (await later(place, STALLED)).evicted == ()
    assert (await later(place, STALLED)).evicted == (ONE,)


async def test_released_work_waits_as_long_as_other_work(place: Place) -> None:
    await later(place, STALLED - 1)
    await place.commit(ReleaseCompactor("t"))
    assert (await later(place, STALLED)).evicted == (), "it was released since the last round"
    assert (await later(place, MIN_AGE - 1)).evicted == ()
    assert (await later(place, 1)).evicted == (ONE,)


async def test_what_was_put_down_before_the_commit_saves_it(place: Place) -> None:
    await later(place, 0)
    place.clock.wall_ms += STALLED
    collector = place.collector()
    commit, outputs = collector._driver.commit, list[str]()

    async def after_a_part(edit: object) -> ManifestState:
        outputs.append(await finish(place, 0))
        return await commit(edit)  # type: ignore[arg-type]

    collector._driver.commit = after_a_part  # type: ignore[method-assign, assignment]
    assert (await collector.sweep()).evicted == ()
    assert len(outputs) == 1
    assert outputs[0] in await place.keys("sst/")
    assert work_mark(await place.head())


async def test_a_dry_run_notes_nothing(place: Place) -> None:
    await place.collector().sweep(dry_run=True)
    assert await place.keys("gc/") == []
    await later(place, 0)
    place.clock.wall_ms += STALLED
    assert (await place.collector().sweep(dry_run=True)).evicted == (ONE,)
    assert (await place.head()).compactor_token == "t"
