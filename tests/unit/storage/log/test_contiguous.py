"""The contiguous log itself over objects laid out by hand: takeovers, and the six ways a put may end."""

from __future__ import annotations

import re
from functools import partial

import pytest

from slate_async.codec.header import HEADER_BYTES, ObjectKind, decode_header
from slate_async.errors import CorruptionError, FencedError, InternalError, SlateError, UnavailableError
from slate_async.storage.log.contiguous import LOST_IDS_BEFORE_WAITING, ContiguousLog
from slate_async.storage.log.names import PREFIX, contiguous_key
from tests.unit.storage.log.shelf import DEADLINE_MS, POLL_MS, Shelf, Step, Taken, names_of, taken_over, unavailable


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def epochs(shelf: Shelf) -> dict[int, str]:
    """Which epoch stands at each id; fences are marked."""
    found = {}
    for key, (_, data) in sorted(shelf.objects.objects.items()):
        header = decode_header(data, object_name=key)
        log_id = int(key.removeprefix(PREFIX).removesuffix(".sst"))
        found[log_id] = f"{header.writer_epoch}{'|' if header.kind is ObjectKind.FENCE else ''}"
    return found


# ---- takeover


async def test_an_empty_log_is_fenced_from_its_start(shelf: Shelf) -> None:
    inherited = await taken_over(shelf.contiguous(), shelf.claim(1, fence_width=3))
    assert names_of(inherited) == []
    assert inherited.next_id == 4
    assert epochs(shelf) == {1: "1|", 2: "1|", 3: "1|"}
    assert {info.size for info, _ in shelf.objects.objects.values()} == {HEADER_BYTES}


async def test_the_alternative_manifest_designs_example(shelf: Shelf) -> None:
    shelf.lay("1.0", "1.1", "2.2", "1.3", "3.5")
    inherited = await taken_over(shelf.contiguous(), shelf.claim(3, fence_width=2, log_start=1))
    assert names_of(inherited) == ["1.1", "2.2"]
    assert epochs(shelf) == {0: "1", 1: "1", 2: "2", 3: "1", 4: "3|", 5: "3"}  # the first free id was 4


async def test_that_example_under_wide_windows_begins_behind_what_may_still_land(shelf: Shelf) -> None:
    """An object past the gap is no part of the log; the fence is as wide as its writer's window."""
    shelf.lay("1.0", "1.1", "2.2", "1.3", "3.5")
    inherited = await taken_over(shelf.contiguous(), shelf.claim(4, fence_width=4, log_start=1))
    assert names_of(inherited) == ["1.1", "2.2"]
    assert inherited.next_id == 8
    assert epochs(shelf) == {0: "1", 1: "1", 2: "2", 3: "1", 4: "4|", 5: "3", 6: "4|", 7: "4|"}


async def test_zombies_and_fences_are_no_rows(shelf: Shelf) -> None:
    shelf.lay("1.1", "2.2|", "1.3", "2.4|", "2.5", "1.6", "2.7")
    inherited = await taken_over(shelf.contiguous(), shelf.claim(3, fence_width=2))
    assert names_of(inherited) == ["1.1", "2.5", "2.7"]
    assert inherited.next_id == 10


async def test_the_manifests_floor_unmasks_zombies_and_the_claimed_epoch_does_not(shelf: Shelf) -> None:
    shelf.lay("1.4", "2.5", "1.6")
    inherited = await taken_over(shelf.contiguous(), shelf.claim(9, log_start=4, log_floor=2))
    assert names_of(inherited) == ["2.5"]
    again = Shelf()
    again.lay("1.4", "2.5", "1.6")
    inherited = await taken_over(again.contiguous(), again.claim(9, log_start=4, log_floor=1))
    assert names_of(inherited) == ["1.4", "2.5"]


async def test_the_fence_is_as_wide_as_any_window_ever_was(shelf: Shelf) -> None:
    """A writer of epoch 1 had 6 objects in flight; of them 3 and 5 landed behind the gap at 2."""
    shelf.lay("1.1", "1.3", "1.5")
    inherited = await taken_over(shelf.contiguous(), shelf.claim(2, fence_width=6))
    assert names_of(inherited) == ["1.1"]
    assert epochs(shelf) == {1: "1", 2: "2|", 3: "1", 4: "2|", 5: "1", 6: "2|", 7: "2|"}
    assert inherited.next_id == 8
    shelf.claim(3, fence_width=6)
    assert shelf.head is not None
    again = await taken_over(shelf.contiguous(), shelf.head)
    assert names_of(again) == ["1.1"]
    assert again.next_id == 14


async def test_an_older_writers_put_that_lands_in_the_window_meanwhile_is_stepped_over(shelf: Shelf) -> None:
    shelf.lay("1.1")
    shelf.store.script("put", contiguous_key(3), Step(before=lambda: shelf.lay("1.3")))
    inherited = await taken_over(shelf.contiguous(), shelf.claim(2, fence_width=3))
    assert names_of(inherited) == ["1.1"]
    assert epochs(shelf) == {1: "1", 2: "2|", 3: "1", 4: "2|"}
    assert inherited.next_id == 5


@pytest.mark.parametrize("where", ["2.2", "2.2|"])
async def test_a_higher_epoch_met_in_the_walk_fences(shelf: Shelf, where: str) -> None:
    shelf.lay("0.1", where)
    with pytest.raises(FencedError, match="writer epoch 2 took over from epoch 1") as caught:
        await taken_over(shelf.contiguous(), shelf.claim(1, fence_width=2))
    assert caught.value.outcome == "not_applied"


async def test_a_higher_epoch_that_wins_the_fences_id_fences(shelf: Shelf) -> None:
    shelf.store.script("put", contiguous_key(1), Step(before=lambda: shelf.lay("2.1|")))
    with pytest.raises(FencedError, match="writer epoch 2"):
        await taken_over(shelf.contiguous(), shelf.claim(1, fence_width=2))
    assert epochs(shelf) == {1: "2|"}


async def test_a_higher_epoch_met_while_widening_fences(shelf: Shelf) -> None:
    shelf.store.script("put", contiguous_key(2), Step(before=lambda: shelf.lay("2.2")))
    with pytest.raises(FencedError, match="writer epoch 2"):
        await taken_over(shelf.contiguous(), shelf.claim(1, fence_width=3))
    assert epochs(shelf) == {1: "1|", 2: "2"}


class Unreadable(Taken):
    """Finds out at the end that what it was given cannot be decoded."""

    async def drain(self) -> None:
        raise CorruptionError("is damaged", object_name=self.objects[-1].key)


async def test_a_log_that_cannot_be_replayed_is_not_fenced(shelf: Shelf) -> None:
    shelf.lay("1.1", "1.2")
    with pytest.raises(CorruptionError, match="is damaged"):
        await shelf.contiguous().take_over(shelf.claim(2, fence_width=2), Unreadable())
    assert epochs(shelf) == {1: "1", 2: "1"}


async def test_a_newer_claim_seen_in_the_last_look_at_the_head_fences(shelf: Shelf) -> None:
    claimed = shelf.claim(1)
    shelf.head_steps.append(lambda: shelf.commit(writer_epoch=2, writer_token="of another"))
    with pytest.raises(FencedError, match="writer epoch 2 took over from epoch 1 while it was opening"):
        await taken_over(shelf.contiguous(), claimed)


async def test_a_head_that_is_missing_fences(shelf: Shelf) -> None:
    claimed = shelf.claim(1)
    shelf.head_steps.append(lambda: setattr(shelf, "head", None))
    with pytest.raises(FencedError, match="writer epoch none"):
        await taken_over(shelf.contiguous(), claimed)


async def test_a_log_that_moved_between_the_walk_and_the_last_look_is_walked_again(shelf: Shelf) -> None:
    """Rules 9 and 21: the fence counts, and the replay's base holds, iff the log still starts where it did."""
    shelf.lay("1.1", "1.2", "1.3")
    claimed = shelf.claim(2, fence_width=2)
    shelf.head_steps.append(lambda: shelf.commit(log_start=3, log_floor=1, last_seq=20))
    inherited = await taken_over(shelf.contiguous(), claimed)
    assert names_of(inherited) == ["1.3"]
    assert inherited.state is shelf.head
    assert (inherited.state.log_start, inherited.state.last_seq) == (3, 20)
    assert epochs(shelf) == {1: "1", 2: "1", 3: "1", 4: "2|", 5: "2|"}
    assert inherited.next_id == 6


async def test_a_fence_below_the_logs_new_start_does_not_count(shelf: Shelf) -> None:
    """Rule 9: the walk found a collected id free and fenced it; live objects stand behind it."""
    claimed = shelf.claim(2, fence_width=1)

    def move() -> None:
        shelf.commit(log_start=5, log_floor=1)
        shelf.lay("1.5", "1.6")

    shelf.head_steps.append(move)
    inherited = await taken_over(shelf.contiguous(), claimed)
    assert names_of(inherited) == ["1.5", "1.6"]
    assert inherited.next_id == 8
    assert epochs(shelf)[7] == "2|"


async def test_an_object_collected_between_listing_and_reading_restarts_the_walk(shelf: Shelf) -> None:
    shelf.lay("1.1", "1.2", "1.3")

    def collect() -> None:
        shelf.remove("1.1", "1.2")
        shelf.commit(log_start=3, log_floor=1)

    shelf.store.script("get", contiguous_key(1), Step(before=collect))
    inherited = await taken_over(shelf.contiguous(), shelf.claim(2, fence_width=2))
    assert names_of(inherited) == ["1.3"]
    assert inherited.state.log_start == 3
    assert inherited.next_id == 6


async def test_an_object_deleted_that_still_belongs_to_the_log_is_corruption(shelf: Shelf) -> None:
    shelf.lay("1.1", "1.2", "1.3")
    shelf.store.script("get", contiguous_key(2), Step(before=lambda: shelf.remove("1.2")))
    with pytest.raises(CorruptionError) as caught:
        await taken_over(shelf.contiguous(), shelf.claim(2, fence_width=2))
    assert caught.value.object_name == contiguous_key(2)


async def test_a_gap_no_window_explains_is_corruption(shelf: Shelf) -> None:
    shelf.lay("1.1", "1.2", "1.4", "1.5")
    with pytest.raises(CorruptionError, match=re.escape(contiguous_key(5))) as caught:
        await taken_over(shelf.contiguous(), shelf.claim(2, fence_width=2))
    assert caught.value.object_name == contiguous_key(3)
    assert epochs(shelf) == {1: "1", 2: "1", 4: "1", 5: "1"}  # nothing was fenced over the loss


async def test_a_gap_in_a_newer_writers_wider_window_fences_and_is_no_corruption(shelf: Shelf) -> None:
    """Epoch 2 has ids 2 and 3 in flight, of which 3 landed: more than the width epoch 1 knows of explains."""
    claimed = shelf.claim(1, fence_width=1)
    shelf.lay("2.1|", "2.3")
    shelf.commit(writer_epoch=2, writer_token="of another", fence_width=2)
    with pytest.raises(FencedError, match="writer epoch 2 took over from epoch 1 while it was opening"):
        await taken_over(shelf.contiguous(), claimed)


async def test_a_gap_that_only_the_listing_saw_is_walked_again(shelf: Shelf) -> None:
    """A page may be older than the page behind it: the object was put between the two."""
    shelf.lay("1.1", "1.3", "1.4")
    shelf.store.script("get", contiguous_key(2), Step(before=lambda: shelf.lay("1.2")))
    inherited = await taken_over(shelf.contiguous(), shelf.claim(2, fence_width=2))
    assert names_of(inherited) == ["1.1", "1.2", "1.3", "1.4"]


async def test_ids_lost_to_a_live_writer_are_inherited_and_waited_for(shelf: Shelf) -> None:
    """Rule 14: it stops after its next look at the head; until then it is a little faster every time."""
    last = 2 * LOST_IDS_BEFORE_WAITING + 3
    for log_id in range(1, last):
        shelf.store.script("put", contiguous_key(log_id), Step(before=partial(shelf.lay, f"1.{log_id}")))
    inherited = await taken_over(shelf.contiguous(), shelf.claim(2, fence_width=2))
    assert names_of(inherited) == [f"1.{log_id}" for log_id in range(1, last)]
    assert inherited.next_id == last + 2
    assert shelf.clock.naps.count(POLL_MS / 1000) == 2


async def test_a_live_writer_that_never_stops_ends_the_opening_at_its_deadline(shelf: Shelf) -> None:
    for log_id in range(1, 2000):
        shelf.store.script("put", contiguous_key(log_id), Step(before=partial(shelf.lay, f"1.{log_id}")))
    with pytest.raises(UnavailableError, match="fencing the log") as caught:
        await taken_over(shelf.contiguous(), shelf.claim(2, fence_width=1))
    assert caught.value.outcome == "unknown"
    assert len(shelf.objects.objects) < 200


async def test_unknown_outcomes_of_fence_puts_are_read_back(shelf: Shelf) -> None:
    """1: the answer is lost; 2: the request; 3: the answer, and the store is deaf for a while."""
    shelf.store.script("put", contiguous_key(1), Step(error=unavailable()))
    shelf.store.script("put", contiguous_key(2), Step(lost=True))
    shelf.store.script("put", contiguous_key(3), Step(error=unavailable()))
    shelf.store.script("get", contiguous_key(3), Step(lost=True), Step(lost=True))
    inherited = await taken_over(shelf.contiguous(), shelf.claim(1, fence_width=3))
    assert inherited.next_id == 4
    assert epochs(shelf) == {1: "1|", 2: "1|", 3: "1|"}
    assert shelf.store.puts.count(contiguous_key(1)) == 1
    assert shelf.store.puts.count(contiguous_key(2)) == 2


async def test_a_lost_fence_put_may_have_lost_its_id_too(shelf: Shelf) -> None:
    shelf.store.script("put", contiguous_key(1), Step(before=lambda: shelf.lay("1.1"), lost=True))
    inherited = await taken_over(shelf.contiguous(), shelf.claim(2, fence_width=1))
    assert names_of(inherited) == ["1.1"]
    assert epochs(shelf) == {1: "1", 2: "2|"}


async def test_a_fence_that_cannot_be_put_ends_the_opening(shelf: Shelf) -> None:
    shelf.store.script("put", contiguous_key(1), *[Step(lost=True)] * 1000)
    with pytest.raises(UnavailableError, match="it may still take effect") as caught:
        await taken_over(shelf.contiguous(), shelf.claim(1))
    assert caught.value.outcome == "unknown"
    assert DEADLINE_MS / 1000 <= shelf.clock.now < 2 * DEADLINE_MS / 1000


async def test_a_foreign_object_is_corruption(shelf: Shelf) -> None:
    shelf.lay("1.1")
    shelf.put(contiguous_key(2), shelf.stored(1))
    with pytest.raises(CorruptionError) as caught:
        await taken_over(shelf.contiguous(), shelf.claim(2))
    assert caught.value.object_name == contiguous_key(2)


# ---- the six outcomes of a put


@pytest.fixture
async def live(shelf: Shelf) -> ContiguousLog:
    """The log of epoch 3, open; its first id is 2."""
    log = shelf.contiguous()
    assert (await taken_over(log, shelf.claim(3))).next_id == 2
    return log


async def test_created(shelf: Shelf, live: ContiguousLog) -> None:
    await live.write(2, shelf.segment(3, 2))
    assert shelf.stored(2) == shelf.segment(3, 2)
    metadata = shelf.objects.objects[contiguous_key(2)][0].metadata
    assert metadata["slate-epoch"] == "3"
    assert metadata["slate-crc32c"] == shelf.segment(3, 2)[HEADER_BYTES - 8 : HEADER_BYTES - 4].hex()


async def test_exists_with_my_epoch_and_my_bytes_is_my_own_retry(shelf: Shelf, live: ContiguousLog) -> None:
    shelf.lay("3.2")
    await live.write(2, shelf.segment(3, 2))
    assert shelf.store.puts.count(contiguous_key(2)) == 1


async def test_exists_with_a_higher_epoch_fences(shelf: Shelf, live: ContiguousLog) -> None:
    shelf.lay("4.2|")
    with pytest.raises(FencedError, match="writer epoch 4 took over from epoch 3") as caught:
        await live.write(2, shelf.segment(3, 2))
    assert caught.value.outcome == "not_applied"


async def test_exists_with_my_epoch_and_other_bytes_fences(shelf: Shelf, live: ContiguousLog) -> None:
    shelf.put(contiguous_key(2), shelf.segment(3, 2, b"other"))
    with pytest.raises(FencedError, match="other bytes of epoch 3") as caught:
        await live.write(2, shelf.segment(3, 2))
    assert caught.value.outcome == "unknown"


async def test_exists_with_a_lower_epoch_closes_and_skips_no_id(shelf: Shelf, live: ContiguousLog) -> None:
    shelf.lay("2.2")
    with pytest.raises(InternalError, match="epoch 2 behind the fence of epoch 3") as caught:
        await live.write(2, shelf.segment(3, 2))
    assert caught.value.outcome == "unknown"
    assert shelf.stored(2) == shelf.segment(2, 2)
    assert contiguous_key(3) not in shelf.objects.objects


async def test_an_error_is_retried_with_read_backs(shelf: Shelf, live: ContiguousLog) -> None:
    shelf.store.script("put", contiguous_key(2), Step(lost=True), Step(lost=True), Step(error=unavailable()))
    shelf.store.script("get", contiguous_key(2), Step(lost=True))
    await live.write(2, shelf.segment(3, 2))
    assert shelf.stored(2) == shelf.segment(3, 2)
    assert shelf.store.puts.count(contiguous_key(2)) == 3
    assert shelf.store.gets.count(contiguous_key(2)) == 3


async def test_an_error_past_the_deadline_is_unavailable_with_an_unknown_outcome(
    shelf: Shelf, live: ContiguousLog
) -> None:
    shelf.store.script("put", contiguous_key(2), *[Step(lost=True)] * 1000)
    before = shelf.clock.now
    with pytest.raises(UnavailableError, match=f"within {DEADLINE_MS} ms") as caught:
        await live.write(2, shelf.segment(3, 2))
    assert caught.value.outcome == "unknown"
    assert DEADLINE_MS / 1000 <= shelf.clock.now - before < 2 * DEADLINE_MS / 1000
    assert contiguous_key(3) not in shelf.store.puts  # no id was skipped


@pytest.mark.parametrize(
    ("found", "error", "outcome"),
    [("4.2|", FencedError, "not_applied"), ("2.2", InternalError, "unknown"), ("3.2", None, None)],
)
async def test_after_a_lost_request_the_read_back_judges(
    shelf: Shelf, live: ContiguousLog, found: str, error: type[SlateError] | None, outcome: str | None
) -> None:
    shelf.store.script("put", contiguous_key(2), Step(before=lambda: shelf.lay(found), lost=True))
    if error is None:
        await live.write(2, shelf.segment(3, 2))
        return
    with pytest.raises(error) as caught:
        await live.write(2, shelf.segment(3, 2))
    assert caught.value.outcome == outcome


async def test_publishing_asks_nothing_of_the_store(shelf: Shelf, live: ContiguousLog) -> None:
    puts, lists = len(shelf.store.puts), shelf.store.lists
    await live.publish(2)
    assert (len(shelf.store.puts), shelf.store.lists, live.key(2)) == (puts, lists, contiguous_key(2))
