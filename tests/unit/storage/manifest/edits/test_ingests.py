"""Edits of bulk ingests, each applied to states laid out by hand."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from metastores.protocol import VersionRef
from slate_async.errors import ConflictError, FencedError, InternalError, InvalidError
from slate_async.storage.manifest.edits.apply_ingests import ApplyIngests, ShowIngests
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint
from slate_async.storage.manifest.edits.gc import AdvanceGc
from slate_async.storage.manifest.edits.ingests import (
    MAX_RECORDS,
    AbortIngest,
    Batch,
    CommitIngest,
    ForgetApp,
    RegisterIngest,
    RenewIngest,
    UnknownStreamError,
    committed_batch,
    counting_query,
    find_ingest,
    find_record,
    unreported_ingests,
)
from slate_async.storage.manifest.edits.lifecycle import RemoveContents
from slate_async.storage.manifest.edits.logged import LogIntoL0, TakeLogIntoL0
from slate_async.storage.manifest.edits.writer import AddL0
from slate_async.storage.manifest.state import ManifestState, SstRef, l0_units
from slate_async.storage.manifest.successor import check_successor
from slate_async.storage.sst.names import sst_key

DATABASE = UUID(int=1)
BASE = ManifestState(
    database_id=DATABASE,
    log_protocol="contiguous",
    wal_enabled=True,
    created_ms=0,
    ref=VersionRef(1, "a" * 32),
    writer_epoch=3,
    last_seq=10,
    last_tick_ms=500,
    log_start=5,
    log_last_seen=4,
)


def sst(number: int, keys: str, *, seqs: tuple[int, int] = (1, 9), base: int = 1) -> SstRef:
    object_id = number.to_bytes(16, "big")
    first, last = keys[:1].encode(), keys[-1:].encode()
    return SstRef(sst_key(base, object_id), object_id, 100, 10, 0, first, last, *seqs, 3)


def committed(
    job_id: str = "job", *keys: str, batch: Batch | None = None, state: ManifestState = BASE
) -> ManifestState:
    """``state`` with a job that is committed."""
    begun = applied(state, RegisterIngest(job_id, 100, 200))
    ssts = tuple(sst(50 + number, bounds) for number, bounds in enumerate(keys or ("ab", "cd")))
    return applied(begun, CommitIngest(DATABASE, job_id, 1, ssts, 150, batch))


def applied(state: ManifestState, edit: object) -> ManifestState:
    """The successor, which keeps every invariant and in which the edit is in."""
    new: ManifestState | None = edit.apply(state)  # type: ignore[attr-defined]
    assert new is not None
    check_successor(state, new)
    assert edit.apply(new) is None  # type: ignore[attr-defined]
    return new


def apply_ingests(*ids: str, **more: object) -> ApplyIngests:
    return ApplyIngests(3, ids, 11, 600, **more)  # type: ignore[arg-type]


def test_a_committed_job_is_pending_and_no_part_of_the_database() -> None:
    state = committed()
    job = find_ingest(state, "job")
    assert job is not None
    assert job.pending
    assert list(state.ssts()) == []
    assert state.last_seq == 10


def test_it_is_applied_under_one_number_above_everything() -> None:
    state = applied(committed(), apply_ingests("job"))
    assert [(sst.global_seq, sst.min_seq, sst.max_seq, sst.global_create_ms) for sst in state.l0] == [
        (11, 11, 11, 600)
    ] * 2
    assert (state.last_seq, state.ingest_seq, state.last_tick_ms, state.required_features) == (11, 11, 600, ("ingest",))
    assert (state.seq_times[-1].seq, state.seq_times[-1].time_ms) == (11, 600)
    assert [len(unit) for unit in l0_units(state.l0)] == [2]


def test_its_driver_is_answered_once_the_writer_shows_it() -> None:
    after = applied(committed(), apply_ingests("job"))
    assert unreported_ingests(after)
    shown = applied(after, ShowIngests(3))
    record = find_record(shown, "job")
    assert record is not None
    assert (record.outcome, record.seq, record.rows, record.shown) == ("admitted", 11, 20, True)
    with pytest.raises(FencedError):
        ShowIngests(2).apply(after)


def test_the_flush_of_what_came_before_goes_along() -> None:
    flush = AddL0(3, 5, 7, sst(1, "az", seqs=(11, 20)), 20, 550, 3, 1, 550)
    state = applied(committed(), replace(apply_ingests("job", flush=flush), first_seq=21))
    assert [sst.max_seq for sst in state.l0] == [21, 21, 20]
    assert (state.log_start, state.last_seq) == (8, 21)


def test_a_number_that_was_given_is_refused() -> None:
    with pytest.raises(InternalError, match="was given already"):
        replace(apply_ingests("job"), first_seq=10).apply(committed())


def test_a_fenced_writer_applies_nothing() -> None:
    with pytest.raises(FencedError):
        replace(apply_ingests("job"), epoch=2).apply(committed())


def test_several_are_numbered_in_the_order_of_their_commits_and_an_aborted_one_takes_none() -> None:
    state = committed("c", "ab", state=committed("b", "ab", state=committed("a", "ab")))
    state = applied(state, AbortIngest("b", 300))
    state = apply_ingests("a", "b", "c").apply(state) or state
    assert [sst.global_seq for sst in state.l0] == [12, 11]
    assert {record.id: record.seq for record in state.ingest_records} == {"a": 11, "b": 0, "c": 12}


def test_without_a_wal_the_log_stands_in_l0_below_it() -> None:
    state = replace(committed(), wal_enabled=False)
    logged = (sst(8, "az", seqs=(13, 14)), sst(7, "az", seqs=(11, 12)))
    edit = replace(apply_ingests("job", log=LogIntoL0(5, 7, logged), log_floor=3), first_seq=15)
    new = applied(state, edit)
    assert [sst.max_seq for sst in new.l0] == [15, 15, 14, 12]
    assert (new.log_start, new.log_floor, new.log_last_seen) == (8, 3, 7)
    with pytest.raises(ConflictError, match="compacted"):
        edit.apply(replace(state, log_start=6))


def test_an_opening_lets_the_log_stand_in_l0() -> None:
    state = replace(committed(), wal_enabled=False, writer_token="me", writer_epoch=4, log_floor=2)
    logged = (sst(8, "az", seqs=(13, 14)), sst(7, "az", seqs=(11, 12)))
    edit = TakeLogIntoL0("me", LogIntoL0(5, 70, logged), 600)
    new = applied(state, edit)
    assert [sst.max_seq for sst in new.l0] == [14, 12, *(sst.max_seq for sst in state.l0)]
    assert (new.log_start, new.log_floor, new.log_last_seen, new.last_seq) == (71, 4, 70, 14)
    assert (new.seq_times[-1].seq, new.seq_times[-1].time_ms) == (14, 600)
    assert edit.apply(new) is None
    with pytest.raises(ConflictError, match="compacted"):
        edit.apply(replace(state, log_start=6))
    for log_start in (5, 71):
        with pytest.raises(FencedError):
            edit.apply(replace(state, writer_token="another", log_start=log_start))


def test_asked_twice_the_first_answer_stands() -> None:
    state = committed()
    again = CommitIngest(DATABASE, "job", 1, (sst(99, "xy"),), 160)
    assert again.apply(state) is None
    assert again.apply(apply_ingests("job").apply(state) or state) is None
    assert RegisterIngest("job", 1, 2).apply(apply_ingests("job").apply(state) or state) is None


@pytest.mark.parametrize(
    ("prepare", "why", "outcome"),
    [
        (lambda state: state, "not registered", "unknown"),  # or applied so long ago that it is forgotten
        (
            lambda state: applied(applied(state, RegisterIngest("job", 1, 2)), AbortIngest("job", 3)),
            "aborted",
            "not_applied",
        ),
        (
            lambda state: applied(applied(state, RegisterIngest("job", 1, 2)), AdvanceGc(10, 5)),
            "expired",
            "not_applied",
        ),
    ],
    ids=["never begun", "aborted", "expired"],
)
def test_a_job_that_is_over_is_not_committed(prepare: object, why: str, outcome: str) -> None:
    state = prepare(BASE)  # type: ignore[operator]
    for edit in (CommitIngest(DATABASE, "job", 1, (), 1), RenewIngest("job", 99)):
        with pytest.raises(ConflictError, match=why) as refused:
            edit.apply(state)
        assert refused.value.outcome == outcome


def test_one_that_ended_without_effect_may_begin_anew_and_its_old_tasks_are_refused() -> None:
    state = applied(applied(BASE, RegisterIngest("job", 1, 2)), AbortIngest("job", 3))
    later = replace(state, ref=VersionRef(4, "b" * 32))
    begun = applied(later, RegisterIngest("job", 5, 6))
    assert find_record(begun, "job") is None
    with pytest.raises(ConflictError, match="begun anew"):
        CommitIngest(DATABASE, "job", 1, (sst(1, "ab"),), 7).apply(begun)
    assert AbortIngest("job", 7, base_version=1).apply(begun) is None  # nor does their driver end it
    assert AbortIngest("job", 7, base_version=4).apply(begun) is not None


def test_overlapping_ssts_are_refused() -> None:
    begun = applied(BASE, RegisterIngest("job", 1, 2))
    with pytest.raises(InvalidError, match="overlapping"):
        CommitIngest(DATABASE, "job", 1, (sst(1, "ac"), sst(2, "cd")), 1).apply(begun)


def test_a_registered_job_holds_the_floor_and_a_committed_one_needs_not() -> None:
    begun = applied(replace(BASE, ref=BASE.ref._replace(version=7)), RegisterIngest("job", 100, 200))
    raised = AdvanceGc(150, 0, floor=50).apply(replace(begun, ref=begun.ref._replace(version=60)))
    assert raised is not None
    assert raised.sst_floor == 7
    pending = applied(begun, CommitIngest(DATABASE, "job", 7, (sst(1, "ab", base=7),), 1))
    free = AdvanceGc(10_000, 0, floor=50).apply(replace(pending, ref=begun.ref._replace(version=60)))
    assert free is not None
    assert free.sst_floor == 50
    assert find_ingest(free, "job") is not None  # what is committed does not expire


def test_a_renewed_job_lives_on() -> None:
    begun = applied(BASE, RegisterIngest("job", 100, 200))
    renewed = applied(begun, RenewIngest("job", 400))
    assert AdvanceGc(300, 0).apply(renewed) is None
    assert AdvanceGc(300, 0).apply(begun) is not None


def test_resuming_a_job_late_lengthens_it() -> None:
    begun = applied(BASE, RegisterIngest("job", 100, 200))
    assert RegisterIngest("job", 140, 240).apply(begun) is None
    longer = find_ingest(applied(begun, RegisterIngest("job", 160, 260)), "job")
    assert longer is not None
    assert (longer.expire_ms, longer.begun_ms, longer.base_version) == (260, 100, 1)
    assert RegisterIngest("job", 900, 1_000).apply(committed()) is None


def test_a_batch_that_is_in_or_waits_is_not_taken_again() -> None:
    state = committed("a", batch=Batch("app", 7))
    for number in (7, 3):
        again = committed("b", batch=Batch("app", number), state=state)
        record = find_record(again, "b")
        assert record is not None
        assert record.outcome == "repeated"
    assert find_ingest(committed("b", batch=Batch("app", 8), state=state), "b") is not None
    after = apply_ingests("a").apply(state) or state
    assert committed_batch(after, "app") == 7
    assert find_ingest(committed("b", batch=Batch("app", 7), state=after), "b") is None
    assert find_ingest(committed("b", batch=Batch("other", 7), state=after), "b") is not None


@pytest.mark.parametrize("waits", [True, False])
def test_the_batches_of_an_app_are_those_of_one_query(waits: bool) -> None:
    """Noted with its first batch, whether that waits or is applied; one that says no query is taken."""
    state = committed("a", batch=Batch("app", 7, "q"))
    state = state if waits else apply_ingests("a").apply(state) or state
    assert counting_query(state, "app") == "q"
    for number in (0, 8):
        with pytest.raises(InvalidError, match="counted by query q, and this one comes from query r") as raised:
            committed("b", batch=Batch("app", number, "r"), state=state)
        assert raised.value.outcome == "not_applied"
    for batch in (Batch("app", 8, "q"), Batch("app", 8)):
        later = committed("b", batch=batch, state=state)
        assert find_ingest(later, "b") is not None
        ids = [ingest.id for ingest in later.ingests]
        after = applied(later, replace(apply_ingests(*ids), first_seq=later.last_seq + 1))
        assert (committed_batch(after, "app"), counting_query(after, "app")) == (8, "q")
    other = committed("b", batch=Batch("other", 0, "r"), state=state)
    assert (counting_query(other, "app"), counting_query(other, "other")) == ("q", "r")


@pytest.mark.parametrize("waits", [True, False])
def test_the_first_query_that_is_named_goes_on_where_those_without_one_stopped(waits: bool) -> None:
    """A lower number is that of a query which counts anew: its rows would be lost."""
    state = committed("a", batch=Batch("app", 5))
    state = state if waits else applied(state, apply_ingests("a"))
    for number in (0, 4):
        with pytest.raises(
            InvalidError, match=rf"up to 5 are in, or wait, and name no query: batch {number}"
        ) as raised:
            committed("b", batch=Batch("app", number, "q"), state=state)
        assert raised.value.outcome == "not_applied"
    repeated = find_record(committed("b", batch=Batch("app", 5, "q"), state=state), "b")
    assert repeated is not None
    assert repeated.outcome == "repeated"
    assert counting_query(committed("b", batch=Batch("app", 6, "q"), state=state), "app") == "q"


def test_a_batch_0_that_names_a_query_is_not_taken_for_one_that_named_none() -> None:
    with pytest.raises(InvalidError, match="counts anew"):
        committed("b", batch=Batch("app", 0, "q"), state=committed("a", batch=Batch("app", 0)))


@pytest.mark.parametrize("waits", [True, False])
def test_a_stream_may_demand_that_it_is_known_or_begins(waits: bool) -> None:
    """Of a query that goes on, what it brought before is elsewhere; one of another app may bring a batch again."""
    with pytest.raises(UnknownStreamError) as raised:
        committed("a", batch=Batch("app", 6, "q", 5))
    assert raised.value.outcome == "not_applied"
    state = committed("a", batch=Batch("app", 5, "q", 5))
    state = state if waits else apply_ingests("a").apply(state) or state
    assert counting_query(state, "app") == "q"
    assert find_ingest(committed("b", batch=Batch("app", 6, "q", 0), state=state), "b") is not None
    with pytest.raises(InvalidError, match="query q has another app id than 'other' here"):
        committed("b", batch=Batch("other", 0, "q", 0), state=state)
    assert find_ingest(committed("b", batch=Batch("other", 0, "q"), state=state), "b") is not None


def test_an_app_that_is_forgotten_may_be_counted_by_another_query() -> None:
    state = committed("a", batch=Batch("app", 7, "q"))
    forgotten = applied(applied(applied(state, apply_ingests("a")), ShowIngests(3)), ForgetApp("app"))
    assert counting_query(committed("b", batch=Batch("app", 0, "r"), state=forgotten), "app") == "r"


def test_the_jobs_of_an_app_that_is_forgotten_may_begin_anew() -> None:
    """Who counts by hand names a job by app and number, so a stream that begins again has the same jobs."""
    state = BASE
    for job_id, batch in (("load", None), ("app/0", Batch("app", 0)), ("again", Batch("app", 0))):
        state = applied(applied(state, RegisterIngest(job_id, 1, 2)), CommitIngest(DATABASE, job_id, 1, (), 3, batch))
    assert RegisterIngest("app/0", 1, 2).apply(state) is None
    forgotten = applied(state, ForgetApp("app"))
    assert [record.id for record in forgotten.ingest_records] == ["load"]
    assert find_ingest(committed("app/0", batch=Batch("app", 0), state=forgotten), "app/0") is not None
    assert ForgetApp("app").apply(forgotten) is None


def test_an_app_is_not_forgotten_while_a_batch_of_it_waits() -> None:
    pending = committed("a", batch=Batch("app", 7))
    unreported = applied(pending, apply_ingests("a"))
    for state in (pending, unreported):
        with pytest.raises(ConflictError, match="'a' of app 'app' is committed, and not in yet") as raised:
            ForgetApp("app").apply(state)
        assert raised.value.outcome == "not_applied"
        assert ForgetApp("other").apply(state) is None
    assert applied(applied(unreported, ShowIngests(3)), ForgetApp("app")).ingest_apps == ()


def test_a_batch_without_rows_notes_its_query_too() -> None:
    begun = applied(BASE, RegisterIngest("job", 1, 2))
    assert counting_query(applied(begun, CommitIngest(DATABASE, "job", 1, (), 1, Batch("app", 5, "q"))), "app") == "q"


def test_a_batch_without_rows_is_in_at_once() -> None:
    begun = applied(BASE, RegisterIngest("job", 1, 2))
    state = applied(begun, CommitIngest(DATABASE, "job", 1, (), 1, Batch("app", 5)))
    record = find_record(state, "job")
    assert record is not None
    assert (record.outcome, record.seq) == ("admitted", 0)
    assert committed_batch(state, "app") == 5


def test_a_batch_is_not_aborted_before_its_successor() -> None:
    state = committed("b", batch=Batch("app", 2), state=committed("a", batch=Batch("app", 1)))
    with pytest.raises(ConflictError, match="abort that one first"):
        AbortIngest("a", 1).apply(state)
    assert committed_batch(applied(state, AbortIngest("b", 1)), "app") == 1


def test_records_are_bounded_and_the_oldest_go_first() -> None:
    state = BASE
    for number in range(MAX_RECORDS + 3):
        begun = RegisterIngest(f"{number}", 1, 2).apply(state)
        assert begun is not None
        state = AbortIngest(f"{number}", 3).apply(begun) or state
    assert len(state.ingest_records) == MAX_RECORDS
    assert find_record(state, "2") is None
    assert find_record(state, "3") is not None


def test_batches_of_streams_forget_no_job_by_name() -> None:
    """A load is asked for again by its name alone; a batch is known by its number, too."""
    state = apply_ingests("load").apply(committed("load")) or BASE
    for number in range(MAX_RECORDS + 3):
        begun = RegisterIngest(f"b{number}", 1, 2).apply(state)
        assert begun is not None
        state = applied(begun, CommitIngest(DATABASE, f"b{number}", 1, (), 1, Batch("app", number)))
    assert len(state.ingest_records) == MAX_RECORDS + 1
    assert RegisterIngest("load", 1, 2).apply(state) is None
    assert find_record(state, "b2") is None
    assert find_record(state, "b3") is not None


def test_what_takes_a_removed_databases_place_knows_none_of_its_jobs() -> None:
    removed = RemoveContents(DATABASE, 1).apply(replace(committed(batch=Batch("app", 1)), destroyed_at_ms=1))
    assert removed is not None
    assert (removed.ingests, removed.ingest_records, removed.ingest_apps) == ((), (), ())


# ---- jobs that replace


BASE_ID = UUID(int=77)


def replacing(expire_ms: int = 200) -> RegisterIngest:
    return RegisterIngest("job", 100, expire_ms, CreateCheckpoint(BASE_ID, "ingest", 100, expire_ms, log_end=9))


def bases(state: ManifestState) -> list[tuple[UUID, int | None, int | None]]:
    return [
        (checkpoint.id, checkpoint.log_end, checkpoint.expire_ms)
        for checkpoint in state.checkpoints
        if checkpoint.owner == "ingest"
    ]


def test_a_job_that_replaces_begins_with_a_checkpoint() -> None:
    state = applied(BASE, replacing())
    job = find_ingest(state, "job")
    assert job is not None
    assert job.replaces == BASE_ID
    assert bases(state) == [(BASE_ID, 9, 200)]
    assert state.log_last_seen == 9
    other = replace(replacing(), replaces=CreateCheckpoint(UUID(int=78), "ingest", 120, 200))
    assert other.apply(state) is None  # a driver that resumes it replaces the same


def test_it_is_lengthened_with_its_job() -> None:
    state = applied(BASE, replacing())
    assert bases(applied(state, RenewIngest("job", 500))) == [(BASE_ID, 9, 500)]
    assert bases(applied(state, replacing(900))) == [(BASE_ID, 9, 900)]


@pytest.mark.parametrize(
    "edit",
    [
        CommitIngest(DATABASE, "job", 1, (sst(50, "ab"),), 150),
        CommitIngest(DATABASE, "job", 1, (), 150),
        AbortIngest("job", 150),
        AdvanceGc(200, 0),
    ],
)
def test_it_goes_with_what_ends_the_need_for_it(edit: object) -> None:
    state = applied(applied(BASE, RegisterIngest("other", 90, 1000)), replacing())
    assert bases(applied(state, edit)) == []


def test_to_add_and_to_replace_are_two_jobs() -> None:
    with pytest.raises(InvalidError, match="'job' replaces what was there"):
        RegisterIngest("job", 100, 200).apply(applied(BASE, replacing()))
    with pytest.raises(InvalidError, match="'job' adds rows"):
        replacing().apply(applied(BASE, RegisterIngest("job", 100, 200)))
    for state in (committed(), applied(committed(), apply_ingests("job"))):
        with pytest.raises(InvalidError, match="'job' adds rows"):
            replacing().apply(state)
    pending = applied(applied(BASE, replacing()), CommitIngest(DATABASE, "job", 1, (sst(50, "ab"),), 150))
    for state in (pending, applied(pending, apply_ingests("job"))):
        assert replacing().apply(state) is None
        with pytest.raises(InvalidError, match="'job' replaces what was there"):
            RegisterIngest("job", 100, 200).apply(state)
