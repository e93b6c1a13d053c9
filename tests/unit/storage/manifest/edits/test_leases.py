"""Jobs that end with their driver: what is committed of them expires, and stays so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metastores.protocol import VersionRef
from slate_async.errors import ConflictError
from slate_async.storage.manifest.codec import KNOWN_FEATURES
from slate_async.storage.manifest.edits.apply_ingests import ApplyIngests
from slate_async.storage.manifest.edits.gc import AdvanceGc
from slate_async.storage.manifest.edits.ingests import (
    AbortIngest,
    CommitIngest,
    RegisterIngest,
    RenewIngest,
    RenewLease,
    find_ingest,
    find_record,
    pending_ingests,
)
from slate_async.storage.manifest.features import LEASE_FEATURE
from slate_async.storage.manifest.state import ManifestState
from tests.unit.storage.manifest.edits.test_ingests import BASE, DATABASE, applied, apply_ingests, committed, sst

LEASE_END_MS = 1_000


def leased(job_id: str = "job", *, state: ManifestState = BASE, lease_ms: int | None = LEASE_END_MS) -> ManifestState:
    """``state`` with a leased job that is committed."""
    begun = applied(state, RegisterIngest(job_id, 100, 200, leased=True))
    return applied(begun, CommitIngest(DATABASE, job_id, 1, (sst(50, "ab"),), 150, lease_ms=lease_ms))


def judging(*ids: str, at_ms: int) -> ApplyIngests:
    """The writer applies those, and judges leases by that time."""
    return replace(apply_ingests(*ids), judged_ms=at_ms)


def test_while_its_lease_lasts_it_is_applied_like_any_other() -> None:
    state = applied(leased(), judging("job", at_ms=LEASE_END_MS - 1))
    assert [ref.global_seq for ref in state.l0] == [11]
    record = find_record(state, "job")
    assert record is not None
    assert record.outcome == "admitted"


def test_once_its_lease_has_ended_it_expires_and_takes_no_number() -> None:
    state = committed("named", "ab", state=leased())
    state = applied(state, judging("job", "named", at_ms=LEASE_END_MS))
    assert [(record.id, record.outcome, record.seq) for record in state.ingest_records] == [
        ("job", "expired", 0),
        ("named", "admitted", 11),
    ]
    assert pending_ingests(state) == ()


def test_what_has_expired_stays_so() -> None:
    """Whoever comes late: its driver, a task, one that knows the name."""
    state = applied(leased(), judging("job", at_ms=LEASE_END_MS))
    late = CommitIngest(DATABASE, "job", 1, (sst(50, "ab"),), 2_000, lease_ms=9_000)
    for edit in (RenewLease("job", 1, 9_000), RenewIngest("job", 9_000), late):
        with pytest.raises(ConflictError, match="expired") as refused:
            edit.apply(state)
        assert refused.value.outcome == "not_applied"
    for is_leased in (True, False):
        with pytest.raises(ConflictError, match="was expired, and does not begin anew"):
            RegisterIngest("job", 2_000, 3_000, leased=is_leased).apply(replace(state, ref=VersionRef(9, "b" * 32)))
    assert judging("job", at_ms=0).apply(state) is None
    assert AbortIngest("job", 2_000).apply(state) is None


def test_nor_does_an_aborted_one_begin_anew() -> None:
    state = applied(applied(BASE, RegisterIngest("job", 100, 200, leased=True)), AbortIngest("job", 150))
    with pytest.raises(ConflictError, match="was aborted, and does not begin anew"):
        RegisterIngest("job", 2_000, 3_000, leased=True).apply(state)


def test_a_renewed_lease_ends_later_and_never_earlier() -> None:
    state = applied(leased(), RenewLease("job", 1, 2_000))
    assert RenewLease("job", 1, 1_500).apply(state) is None
    state = applied(state, judging("job", at_ms=1_999))
    assert len(state.l0) == 1
    assert RenewLease("job", 1, 9_000).apply(state) is None


def test_the_renewal_of_a_registered_job_lengthens_no_lease() -> None:
    """It was sent before the commit, by a day, and comes after it."""
    state = leased()
    assert RenewIngest("job", 86_400_000).apply(state) is None
    begun = applied(BASE, RegisterIngest("job", 100, 200, leased=True))
    assert RenewLease("job", 1, 9_000).apply(begun) is None
    job = find_ingest(state, "job")
    assert job is not None
    assert job.expire_ms == LEASE_END_MS


def test_a_job_of_the_callers_name_or_that_nobody_waits_for_has_no_lease() -> None:
    for state in (committed(), leased(lease_ms=None)):
        assert LEASE_FEATURE not in state.required_features
        assert RenewLease("job", 1, 9_000).apply(state) is None
        assert len((judging("job", at_ms=10**12).apply(state) or state).l0) > 0
        assert AdvanceGc(10**12, 0).apply(state) is None


def test_gc_ends_it_too_and_spares_nothing_of_it() -> None:
    state = leased()
    assert AdvanceGc(LEASE_END_MS + 59, 60).apply(state) is None
    after = applied(state, AdvanceGc(LEASE_END_MS + 60, 60))
    assert after.ingests == ()
    record = find_record(after, "job")
    assert record is not None
    assert (record.outcome, record.leased) == ("expired", True)


def test_releases_that_know_no_leases_refuse_the_database() -> None:
    state = leased()
    assert LEASE_FEATURE in state.required_features
    assert set(state.required_features) <= KNOWN_FEATURES
