"""The epoch-prefixed log itself over objects and a register laid out by hand: takeovers, puts, publishing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from metastores.errors import MetaStoreUnavailableError
from metastores.protocol import Unknown
from slate_async.errors import CorruptionError, FencedError, UnavailableError
from slate_async.storage.log.epoch_prefixed import EpochPrefixedLog
from slate_async.storage.log.names import PREFIX, epoch_key
from slate_async.storage.log.recovery import EpochRange
from slate_async.storage.log.register import WriterRegister
from tests.unit.storage.log.shelf import DEADLINE_MS, CasStep, Shelf, Step, names_of, taken_over, unavailable

MANIFEST_DESIGN = ["1.1", "1.2", "1.3", "2.3", "1.4", "2.4", "2.5", "2.6", "3.6", "3.7"]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf("epoch_prefixed")


def held(shelf: Shelf, ranges: Sequence[tuple[int, int] | tuple[int, int, int]], last_written: int) -> WriterRegister:
    """The register as the last of ``ranges``' writers left it."""
    epoch = ranges[-1][0]
    register = WriterRegister(
        epoch, f"token of epoch {epoch}", tuple(EpochRange(*epoch_range) for epoch_range in ranges), last_written
    )
    shelf.register.place(register)
    return register


# ---- takeover


async def test_the_first_writer_begins_at_one(shelf: Shelf) -> None:
    log = shelf.epoch_prefixed()
    inherited = await taken_over(log, shelf.claim(1))
    assert (names_of(inherited), inherited.next_id) == ([], 1)
    assert shelf.register.holds() == WriterRegister(1, "token of epoch 1", (EpochRange(1, 1),), 0)
    assert log.key(1) == epoch_key(1, 1)


async def test_the_manifest_designs_example(shelf: Shelf) -> None:
    shelf.lay(*MANIFEST_DESIGN)
    held(shelf, [(1, 1, 2), (2, 3, 5), (3, 6)], 7)
    inherited = await taken_over(shelf.epoch_prefixed(), shelf.claim(4, log_start=2))
    assert names_of(inherited) == ["1.2", "2.3", "2.4", "2.5", "3.6", "3.7"]
    assert inherited.next_id == 8
    taken = shelf.register.holds()
    assert taken is not None
    assert taken.ranges == (EpochRange(1, 1, 2), EpochRange(2, 3, 5), EpochRange(3, 6, 7), EpochRange(4, 8))
    assert not {epoch_key(1, 1), epoch_key(1, 3), epoch_key(1, 4), epoch_key(2, 6)} & set(shelf.store.gets)


async def test_its_compactor_case_sees_only_the_log_and_never_the_zombies(shelf: Shelf) -> None:
    """After 1.3, before 2.3: there is 1.2 to compact. Once it is, later opens never meet 1.3 and 1.4."""
    shelf.lay("1.1", "1.2", "1.3")
    held(shelf, [(1, 1, 2), (2, 3)], 2)
    inherited = await taken_over(shelf.epoch_prefixed(), shelf.claim(3, log_start=2))
    assert names_of(inherited) == ["1.2"]
    later = Shelf("epoch_prefixed")
    later.lay(*MANIFEST_DESIGN)
    held(later, [(1, 1, 2), (2, 3, 5), (3, 6)], 7)
    inherited = await taken_over(later.epoch_prefixed(), later.claim(4, log_start=3))
    assert names_of(inherited) == ["2.3", "2.4", "2.5", "3.6", "3.7"]
    taken = later.register.holds()
    assert taken is not None
    assert [entry.epoch for entry in taken.ranges] == [2, 3, 4]


async def test_a_zombie_never_stands_in_for_the_live_writers_lost_object(shelf: Shelf) -> None:
    """2.3 never landed and was never committed; nothing above it was acknowledged."""
    shelf.lay("1.2", "1.3", "2.4")
    held(shelf, [(1, 1, 2), (2, 3)], 2)
    inherited = await taken_over(shelf.epoch_prefixed(), shelf.claim(3, log_start=2))
    assert names_of(inherited) == ["1.2"]
    assert inherited.next_id == 3
    taken = shelf.register.holds()
    assert taken is not None
    assert taken.owner(3) == 3
    assert taken.owner(2) == 1


async def test_a_committed_object_that_is_missing_is_corruption_whatever_a_zombie_left_there(shelf: Shelf) -> None:
    shelf.lay("1.2", "1.3", "2.4")
    held(shelf, [(1, 1, 2), (2, 3)], 4)
    with pytest.raises(CorruptionError, match="a committed log object is missing") as caught:
        await taken_over(shelf.epoch_prefixed(), shelf.claim(3, log_start=2))
    assert caught.value.object_name == epoch_key(2, 3)


async def test_an_object_under_another_epochs_name_is_corruption(shelf: Shelf) -> None:
    shelf.put(epoch_key(2, 1), shelf.segment(1, 1))
    held(shelf, [(2, 1)], 1)
    with pytest.raises(CorruptionError, match="was written by epoch 1") as caught:
        await taken_over(shelf.epoch_prefixed(), shelf.claim(3))
    assert caught.value.object_name == epoch_key(2, 1)


async def test_what_landed_without_a_gap_past_the_committed_end_is_inherited(shelf: Shelf) -> None:
    """Rule 17: flushed writes survive a plain crash; what stands behind a gap does not."""
    shelf.lay("1.1", "1.2", "1.3", "1.5")
    held(shelf, [(1, 1)], 1)
    inherited = await taken_over(shelf.epoch_prefixed(), shelf.claim(2))
    assert names_of(inherited) == ["1.1", "1.2", "1.3"]
    assert inherited.next_id == 4
    assert shelf.register.holds() == WriterRegister(2, "token of epoch 2", (EpochRange(1, 1, 3), EpochRange(2, 4)), 3)
    assert shelf.clock.naps == []


@pytest.mark.parametrize(("lands", "expected"), [(True, "1.1 1.2 1.3"), (False, "1.1")])
async def test_a_gap_is_waited_for_once(shelf: Shelf, lands: bool, expected: str) -> None:
    shelf.lay("1.1", "1.3")
    held(shelf, [(1, 1)], 1)

    def while_it_waited() -> None:
        if lands:
            shelf.lay("1.2")

    shelf.store.script("list", f"{PREFIX}{1:018}.", Step(), Step(before=while_it_waited))
    inherited = await taken_over(shelf.epoch_prefixed(gap_wait_ms=700), shelf.claim(2))
    assert names_of(inherited) == expected.split()
    assert shelf.clock.naps == [0.7]


@pytest.mark.parametrize("present", ["", "1.2", "1.2 1.3"])
async def test_without_a_gap_nothing_is_waited_for(shelf: Shelf, present: str) -> None:
    shelf.lay("1.1", *present.split())
    held(shelf, [(1, 1)], 1)
    await taken_over(shelf.epoch_prefixed(gap_wait_ms=700), shelf.claim(2))
    assert shelf.clock.naps == []


async def test_a_higher_epoch_in_the_register_fences(shelf: Shelf) -> None:
    before = held(shelf, [(3, 1)], 0)
    with pytest.raises(FencedError, match="writer epoch 3 took over from epoch 2 while it was opening"):
        await taken_over(shelf.epoch_prefixed(), shelf.claim(2))
    assert shelf.register.holds() == before


async def test_another_owner_of_the_same_epoch_fences(shelf: Shelf) -> None:
    shelf.register.place(WriterRegister(2, "of another", (EpochRange(2, 1),), 0))
    with pytest.raises(FencedError, match="another writer holds epoch 2"):
        await taken_over(shelf.epoch_prefixed(), shelf.claim(2))


async def test_a_newer_claim_seen_in_the_last_look_at_the_head_fences(shelf: Shelf) -> None:
    claimed = shelf.claim(1)
    shelf.head_steps.append(lambda: shelf.commit(writer_epoch=2, writer_token="of another"))
    with pytest.raises(FencedError, match="writer epoch 2 took over from epoch 1 while it was opening"):
        await taken_over(shelf.epoch_prefixed(), claimed)


async def test_a_claim_whose_answer_was_lost_is_recognised(shelf: Shelf) -> None:
    """Found again in the register it is ours: the range does not begin anew, and later objects count."""
    shelf.lay("1.1")
    held(shelf, [(1, 1)], 1)
    shelf.register.steps.append(CasStep(answer=Unknown("no answer")))
    log = shelf.epoch_prefixed()
    inherited = await taken_over(log, shelf.claim(2))
    assert (names_of(inherited), inherited.next_id, shelf.register.attempts) == (["1.1"], 2, 1)
    await log.publish(2)
    taken = shelf.register.holds()
    assert taken is not None
    assert (taken.epoch, taken.last_written) == (2, 2)


async def test_a_claim_that_was_lost_on_its_way_is_repeated(shelf: Shelf) -> None:
    held(shelf, [(1, 1)], 0)
    unknown = CasStep(answer=Unknown("no answer"), lost=True)
    shelf.register.steps += [unknown, CasStep(error=MetaStoreUnavailableError("throttled"), lost=True), unknown]
    inherited = await taken_over(shelf.epoch_prefixed(), shelf.claim(2))
    assert (inherited.next_id, shelf.register.attempts) == (1, 4)


async def test_a_claim_that_meets_a_commit_of_the_older_writer_inherits_it(shelf: Shelf) -> None:
    """One compare-and-set reads and replaces the cell by which it acknowledges: both cannot win."""
    shelf.lay("1.1")
    held(shelf, [(1, 1)], 1)

    def commit() -> None:
        shelf.lay("1.2", "1.3")
        held(shelf, [(1, 1)], 3)

    shelf.register.steps.append(CasStep(before=commit))
    inherited = await taken_over(shelf.epoch_prefixed(), shelf.claim(2))
    assert names_of(inherited) == ["1.1", "1.2", "1.3"]
    assert inherited.next_id == 4


async def test_a_register_that_never_answers_ends_the_opening_at_its_deadline(shelf: Shelf) -> None:
    shelf.register.steps += [CasStep(error=MetaStoreUnavailableError("throttled"), lost=True)] * 1000
    with pytest.raises(UnavailableError, match="taking over the writer's register") as caught:
        await taken_over(shelf.epoch_prefixed(), shelf.claim(1))
    assert caught.value.outcome == "unknown"
    assert isinstance(caught.value.__cause__, UnavailableError)
    assert shelf.clock.now == pytest.approx(2 * DEADLINE_MS / 1000)


@pytest.mark.parametrize("evidence", ["objects", "log_start"])
async def test_a_register_that_is_missing_is_corruption_and_no_empty_log(shelf: Shelf, evidence: str) -> None:
    if evidence == "objects":
        shelf.lay("1.1")
    with pytest.raises(CorruptionError) as caught:
        await taken_over(shelf.epoch_prefixed(), shelf.claim(2, log_start=1 if evidence == "objects" else 2))
    assert caught.value.object_name == "writer register"
    assert shelf.register.holds() is None


async def test_a_register_written_while_it_was_looked_for_is_no_lost_one(shelf: Shelf) -> None:
    def open_first() -> None:
        shelf.lay("1.1")
        held(shelf, [(1, 1)], 1)

    shelf.store.script("list", PREFIX, Step(before=open_first))
    inherited = await taken_over(shelf.epoch_prefixed(), shelf.claim(2))
    assert names_of(inherited) == ["1.1"]


async def test_a_log_that_moved_while_it_was_replayed_is_replayed_again(shelf: Shelf) -> None:
    shelf.lay("1.1", "1.2", "1.3")
    held(shelf, [(1, 1)], 3)
    shelf.head_steps.append(lambda: shelf.commit(log_start=3, log_floor=1, last_seq=20))
    inherited = await taken_over(shelf.epoch_prefixed(), shelf.claim(2))
    assert names_of(inherited) == ["1.3"]
    assert inherited.state is shelf.head
    assert inherited.next_id == 4


async def test_objects_compacted_and_collected_while_they_were_read_are_not_lost_ones(shelf: Shelf) -> None:
    shelf.lay("1.1", "1.2", "1.3")
    held(shelf, [(1, 1)], 3)

    def collect() -> None:
        shelf.remove("1.1", "1.2")
        shelf.commit(log_start=3, log_floor=1)

    shelf.store.script("get", epoch_key(1, 1), Step(before=collect))
    inherited = await taken_over(shelf.epoch_prefixed(), shelf.claim(2))
    assert names_of(inherited) == ["1.3"]


async def test_a_writer_begins_behind_what_the_manifest_compacted(shelf: Shelf) -> None:
    """Rule 16: the positions of the register may lie below the manifest's."""
    held(shelf, [(1, 1)], 3)
    inherited = await taken_over(shelf.epoch_prefixed(), shelf.claim(2, log_start=8))
    assert (names_of(inherited), inherited.next_id) == ([], 8)
    assert shelf.register.holds() == WriterRegister(2, "token of epoch 2", (EpochRange(2, 8),), 7)


# ---- life


@pytest.fixture
async def live(shelf: Shelf) -> EpochPrefixedLog:
    """The log of epoch 3, open; its first id is 1."""
    log = shelf.epoch_prefixed()
    assert (await taken_over(log, shelf.claim(3))).next_id == 1
    shelf.register.attempts = 0
    return log


def last_written(shelf: Shelf) -> int:
    register = shelf.register.holds()
    assert register is not None
    return register.last_written


async def test_a_put_is_repeated_until_it_is_in(shelf: Shelf, live: EpochPrefixedLog) -> None:
    shelf.store.script("put", epoch_key(3, 1), Step(lost=True), Step(error=unavailable()))
    await live.write(1, shelf.segment(3, 1))
    assert shelf.stored(1, 3) == shelf.segment(3, 1)
    assert shelf.store.puts == [epoch_key(3, 1)] * 3


async def test_a_put_past_its_deadline_is_unavailable_with_an_unknown_outcome(
    shelf: Shelf, live: EpochPrefixedLog
) -> None:
    shelf.store.script("put", epoch_key(3, 1), *[Step(lost=True)] * 1000)
    with pytest.raises(UnavailableError) as caught:
        await live.write(1, shelf.segment(3, 1))
    assert caught.value.outcome == "unknown"
    assert shelf.clock.now == pytest.approx(DEADLINE_MS / 1000)
    assert last_written(shelf) == 0


async def test_publishing_commits_and_never_goes_back(shelf: Shelf, live: EpochPrefixedLog) -> None:
    await live.publish(4)
    await live.publish(2)
    assert (last_written(shelf), shelf.register.attempts) == (4, 1)


async def test_a_publish_whose_answer_was_lost_is_read_back(shelf: Shelf, live: EpochPrefixedLog) -> None:
    shelf.register.steps.append(CasStep(answer=Unknown("no answer")))
    await live.publish(4)
    assert (last_written(shelf), shelf.register.attempts) == (4, 1)
    await live.publish(5)
    assert last_written(shelf) == 5


async def test_a_publish_that_was_lost_on_its_way_is_repeated(shelf: Shelf, live: EpochPrefixedLog) -> None:
    shelf.register.steps += [
        CasStep(answer=Unknown("no answer"), lost=True),
        CasStep(error=MetaStoreUnavailableError("throttled"), lost=True),
    ]
    await live.publish(4)
    assert (last_written(shelf), shelf.register.attempts) == (4, 3)


async def test_a_smaller_publish_of_mine_that_lands_late_takes_nothing_back(
    shelf: Shelf, live: EpochPrefixedLog
) -> None:
    """Rule 15: the conflict shows my own register; the larger position is committed over it."""
    mine = shelf.register.holds()
    assert mine is not None
    shelf.register.steps.append(CasStep(before=lambda: shelf.register.place(mine.publish(2))))
    await live.publish(4)
    assert (last_written(shelf), shelf.register.attempts) == (4, 2)


async def test_a_larger_publish_of_mine_that_lands_late_is_kept(shelf: Shelf, live: EpochPrefixedLog) -> None:
    mine = shelf.register.holds()
    assert mine is not None
    shelf.register.steps.append(CasStep(before=lambda: shelf.register.place(mine.publish(9))))
    await live.publish(4)
    assert (last_written(shelf), shelf.register.attempts) == (9, 1)


@pytest.mark.parametrize("lost", [False, True], ids=["conflict", "unknown"])
async def test_a_publish_after_a_take_over_fences_and_writes_nothing(
    shelf: Shelf, live: EpochPrefixedLog, lost: bool
) -> None:
    other = WriterRegister(4, "token of epoch 4", (EpochRange(3, 1, 2), EpochRange(4, 3)), 2)
    answer = Unknown("no answer") if lost else None
    shelf.register.steps.append(CasStep(before=lambda: shelf.register.place(other), answer=answer, lost=lost))
    with pytest.raises(FencedError, match="writer epoch 4 took over from epoch 3") as caught:
        await live.publish(4)
    assert caught.value.outcome == "unknown"
    assert shelf.register.holds() == other


async def test_a_publish_under_a_register_of_my_epoch_with_another_token_fences(
    shelf: Shelf, live: EpochPrefixedLog
) -> None:
    other = WriterRegister(3, "of another", (EpochRange(3, 1),), 0)
    shelf.register.steps.append(CasStep(before=lambda: shelf.register.place(other)))
    with pytest.raises(FencedError):
        await live.publish(4)
    assert shelf.register.holds() == other


async def test_a_publish_past_its_deadline_is_unavailable_with_an_unknown_outcome(
    shelf: Shelf, live: EpochPrefixedLog
) -> None:
    shelf.register.steps += [CasStep(answer=Unknown("no answer"), lost=True)] * 1000
    with pytest.raises(UnavailableError, match="committing log position 4") as caught:
        await live.publish(4)
    assert caught.value.outcome == "unknown"
    assert shelf.clock.now == pytest.approx(DEADLINE_MS / 1000)


async def test_what_was_published_is_what_a_successor_inherits(shelf: Shelf, live: EpochPrefixedLog) -> None:
    for log_id in (1, 2, 3):
        await live.write(log_id, shelf.segment(3, log_id))
    await live.publish(2)
    shelf.remove("3.3")
    inherited = await taken_over(shelf.epoch_prefixed(), shelf.claim(4))
    assert names_of(inherited) == ["3.1", "3.2"]
    with pytest.raises(FencedError):
        await live.publish(3)
