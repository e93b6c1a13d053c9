"""`slate_async.storage.manifest.edits.lifecycle`: clones, detaching, destroying, making again."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from metastores.protocol import VersionRef
from slate_async.errors import ConflictError, FencedError, InvalidError
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint
from slate_async.storage.manifest.edits.lifecycle import (
    ClaimToDestroy,
    CopyContents,
    DetachParents,
    FinishClone,
    ForgetParent,
    MarkDestroyed,
    Recreate,
    RemoveContents,
    unfinished_clone,
)
from slate_async.storage.manifest.edits.protocol import Edit
from slate_async.storage.manifest.state import Checkpoint, ManifestState, Parent, SortedRun, SstRef
from slate_async.storage.manifest.successor import check_successor

NOW = 1_750_000_000_000
SOURCE, CLONE, GRAND, AGAIN = (UUID(int=n) for n in (1, 2, 3, 4))
PIN, USERS = UUID(int=11), UUID(int=12)
TOKEN = "a" * 32


def sst(number: int, database_id: UUID | None = None) -> SstRef:
    return SstRef(
        f"sst/{number:020}.{number:032x}.sst",
        number.to_bytes(16, "big"),
        size=1000,
        rows=1,
        tombstones=0,
        first_key=b"a",
        last_key=b"z",
        min_seq=number,
        max_seq=number,
        writer_epoch=1,
        database_id=database_id,
    )


def database(**more: object) -> ManifestState:
    state = ManifestState(SOURCE, "contiguous", wal_enabled=True, created_ms=NOW, ref=VersionRef(7, "t"))
    return replace(state, **more)  # type: ignore[arg-type]


def applied(edit: Edit, state: ManifestState) -> ManifestState:
    """The successor, which is legal and in which the edit finds its mark."""
    new = edit.apply(state)
    assert new is not None
    check_successor(state, new)
    new = replace(new, ref=VersionRef(state.version + 1, "t"))
    assert edit.apply(new) is None
    return new


SOURCE_STATE = database(
    writer_epoch=5,
    writer_token=TOKEN,
    compactor_epoch=2,
    log_start=30,
    log_last_seen=35,
    log_floor=4,
    last_seq=99,
    sst_floor=6,
    fence_width=3,
    l0=(sst(9),),
    runs=(SortedRun(1, (sst(2), sst(1, GRAND))),),
    checkpoints=(Checkpoint(USERS, VersionRef(6, "s"), NOW, "user", 30, log_end=33),),
    parents=(Parent(GRAND, "memory://grand", UUID(int=20)), Parent(UUID(int=30), "memory://gone")),
    properties={"of": "the parent"},
)
PINNED = Checkpoint(PIN, VersionRef(7, "t"), NOW, "clone", 30, log_end=34)
UNFINISHED = replace(
    unfinished_clone(
        SOURCE_STATE, Parent(SOURCE, "memory://parent", PIN), database_id=CLONE, now_ms=NOW + 1, properties=None
    ),
    ref=VersionRef(1, "u"),
)


def test_a_clone_has_what_its_source_has_and_names_whose_it_is() -> None:
    copied = applied(CopyContents(CLONE, SOURCE_STATE, PINNED), UNFINISHED)
    assert not copied.initialized
    assert [sst.database_id for sst in copied.ssts()] == [SOURCE, SOURCE, GRAND]
    assert copied.parents == (Parent(SOURCE, "memory://parent", PIN), Parent(GRAND, "memory://grand"))
    assert (copied.writer_epoch, copied.writer_token, copied.checkpoints, copied.sst_floor) == (6, "", (), 0)
    assert (copied.log_start, copied.log_last_seen, copied.log_floor, copied.last_seq) == (30, 34, 4, 99)
    assert copied.properties == {"of": "the parent"}
    assert applied(FinishClone(CLONE), copied).initialized


def test_a_clone_that_was_destroyed_is_not_finished() -> None:
    gone = applied(MarkDestroyed(CLONE, None, NOW, 0, refuse_held=False), UNFINISHED)
    for edit in (CopyContents(CLONE, SOURCE_STATE, PINNED), FinishClone(CLONE)):
        with pytest.raises(InvalidError, match="destroyed while it was being made"):
            edit.apply(gone)


def test_a_finished_clone_is_not_destroyed_as_an_unfinished_one() -> None:
    finished = applied(FinishClone(CLONE), applied(CopyContents(CLONE, SOURCE_STATE, PINNED), UNFINISHED))
    with pytest.raises(FencedError):
        MarkDestroyed(CLONE, None, NOW, 0, refuse_held=False).apply(finished)
    with pytest.raises(FencedError):  # nor if another process has destroyed it, which may mean it to stay for a while
        MarkDestroyed(CLONE, None, NOW, 0, refuse_held=False).apply(replace(finished, destroyed_at_ms=NOW))


FINISHED = replace(
    database(parents=(Parent(GRAND, "memory://grand", PIN), Parent(UUID(int=30), "memory://root"))),
    l0=(sst(9),),
)


def test_detaching_remembers_the_checkpoint_until_it_is_given_back() -> None:
    detached = applied(DetachParents(SOURCE, FINISHED.version), FINISHED)
    assert detached.parents == (Parent(GRAND, "memory://grand", PIN, detached=True),)
    assert applied(ForgetParent(SOURCE, PIN), detached).parents == ()


def test_a_parent_that_is_still_named_is_not_forgotten() -> None:
    assert ForgetParent(SOURCE, PIN).apply(FINISHED) is None


@pytest.mark.parametrize(
    "state",
    [
        replace(FINISHED, l0=(sst(9, GRAND),)),
        replace(FINISHED, runs=(SortedRun(1, (sst(1, GRAND),)),)),
        replace(FINISHED, checkpoints=(Checkpoint(USERS, VersionRef(5, "unread"), NOW, "user", 1),)),
        replace(FINISHED, initialized=False),
    ],
    ids=["L0", "a run", "a checkpoint nobody looked at", "not yet a database"],
)
def test_a_clone_that_may_still_name_a_parents_sst_is_not_detached(state: ManifestState) -> None:
    with pytest.raises(ConflictError):
        DetachParents(SOURCE, 6, frozenset({VersionRef(4, "read")})).apply(state)


def test_a_checkpoint_that_was_read_stands_not_in_the_way() -> None:
    ref = VersionRef(5, "read")
    state = replace(FINISHED, checkpoints=(Checkpoint(USERS, ref, NOW, "user", 1),))
    applied(DetachParents(SOURCE, 6, frozenset({ref})), state)


def test_a_checkpoint_of_a_version_behind_a_free_head_stands_not_in_the_way() -> None:
    """A writer pins anew with every flush; what it pins then is the clone's own."""
    state = replace(FINISHED, checkpoints=(Checkpoint(USERS, VersionRef(6, "unread"), NOW, "writer", 1),))
    applied(DetachParents(SOURCE, 6), state)


def claimed() -> ManifestState:
    return applied(ClaimToDestroy(SOURCE, TOKEN), database(expiry_floor_ms=17, log_last_seen=3, last_seq=8))


def destroyed(state: ManifestState | None = None) -> ManifestState:
    return applied(MarkDestroyed(SOURCE, TOKEN, NOW, 40, refuse_held=True), claimed() if state is None else state)


def test_a_writer_that_claims_after_the_fence_must_be_fenced_first() -> None:
    with pytest.raises(FencedError):
        MarkDestroyed(SOURCE, "another", NOW, 40, refuse_held=True).apply(claimed())


def test_nothing_is_made_of_a_destroyed_database() -> None:
    with pytest.raises(InvalidError, match="destroyed"):
        CreateCheckpoint(PIN, "user", NOW, None).apply(destroyed())
    with pytest.raises(FencedError):
        ClaimToDestroy(SOURCE, "later").apply(destroyed())


@pytest.mark.parametrize(
    ("checkpoint", "held"),
    [
        (Checkpoint(USERS, VersionRef(1, "r"), NOW, "user", 1), True),
        (Checkpoint(USERS, VersionRef(1, "r"), NOW, "clone", 1), True),
        (Checkpoint(USERS, VersionRef(1, "r"), NOW, "reader", 1, expire_ms=NOW + 1), True),
        (Checkpoint(USERS, VersionRef(1, "r"), NOW, "reader", 1, expire_ms=NOW), False),
        (Checkpoint(USERS, VersionRef(1, "r"), NOW, "writer", 1, epoch=1), False),
    ],
)
def test_a_database_is_removed_only_without_living_checkpoints(checkpoint: Checkpoint, held: bool) -> None:
    soft = MarkDestroyed(SOURCE, TOKEN, NOW, 40, refuse_held=False)
    marked = applied(soft, replace(claimed(), checkpoints=(checkpoint,)))
    if held:
        with pytest.raises(InvalidError, match=str(USERS)):
            RemoveContents(SOURCE, NOW).apply(marked)
        with pytest.raises(InvalidError, match=str(USERS)):
            destroyed(replace(claimed(), checkpoints=(checkpoint,)))
    else:
        assert applied(RemoveContents(SOURCE, NOW), marked).checkpoints == ()


def test_a_recreated_database_continues_what_must_not_be_repeated() -> None:
    removed = applied(RemoveContents(SOURCE, NOW), destroyed(replace(claimed(), l0=(sst(5),), fence_width=4)))
    assert (removed.l0, removed.log_start) == ((), 41)
    first = ManifestState(AGAIN, "contiguous", wal_enabled=False, created_ms=NOW + 5, properties={"mine": "now"})
    again = applied(Recreate(first), removed)
    assert (again.database_id, again.wal_enabled, again.properties) == (AGAIN, False, {"mine": "now"})
    assert (again.destroyed_at_ms, again.removed, again.writer_token) == (None, False, "")
    assert (again.writer_epoch, again.compactor_epoch) == (removed.writer_epoch, removed.compactor_epoch + 1)
    assert (again.log_start, again.last_seq, again.fence_width) == (41, 8, 4)
    assert again.sst_floor == again.version
    with pytest.raises(InvalidError, match="another one made in its place"):
        RemoveContents(SOURCE, NOW).apply(again)


def test_a_recreated_database_keeps_its_log_as_the_fences_are() -> None:
    removed = applied(RemoveContents(SOURCE, NOW), destroyed())
    with pytest.raises(InvalidError, match="contiguous"):
        Recreate(ManifestState(AGAIN, "epoch_prefixed", wal_enabled=True, created_ms=NOW)).apply(removed)


def test_a_removed_clone_gives_its_checkpoint_back_before_another_is_made() -> None:
    held = replace(claimed(), parents=(Parent(GRAND, "memory://grand", PIN),))
    removed = applied(RemoveContents(SOURCE, NOW), destroyed(held))
    again = Recreate(ManifestState(AGAIN, "contiguous", wal_enabled=True, created_ms=NOW))
    with pytest.raises(InvalidError, match="destroy it once more"):
        again.apply(removed)
    applied(again, applied(ForgetParent(SOURCE, PIN), removed))
