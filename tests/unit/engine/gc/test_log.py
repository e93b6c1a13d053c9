"""Which log objects may go, for both protocols: positions, checkpoints, fences, zombies."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from metastores.protocol import VersionRef
from slate_async.codec.header import HEADER_BYTES
from slate_async.engine.gc.log import COMPACTED, OF_A_ZOMBIE, LogJudge
from slate_async.objectstore.protocol import ObjectInfo
from slate_async.storage.log.names import contiguous_key, epoch_key
from slate_async.storage.log.recovery import EpochRange
from slate_async.storage.log.register import WriterRegister
from slate_async.storage.manifest.state import Checkpoint, ManifestState

CONTIGUOUS = ManifestState(
    database_id=UUID(int=7), log_protocol="contiguous", wal_enabled=True, created_ms=0, log_start=10
)
PREFIXED = replace(CONTIGUOUS, log_protocol="epoch_prefixed")
REGISTER = WriterRegister(5, "t", (EpochRange(3, 8, 12), EpochRange(5, 13)), last_written=20)


def checkpoint(start: int, end: int | None, ranges: tuple[tuple[int, int], ...] = (), number: int = 1) -> Checkpoint:
    return Checkpoint(UUID(int=number), VersionRef(3, "b" * 32), 0, "user", start, None, end, ranges)


def info(key: str, size: int = HEADER_BYTES + 1) -> ObjectInfo:
    return ObjectInfo(key, size, "e", 0)


def garbage(state: ManifestState, ids: range, keys: frozenset[str] = frozenset()) -> list[int]:
    judge = LogJudge(state, keys, None)
    return [log_id for log_id in ids if judge.why_garbage(info(contiguous_key(log_id))) is not None]


def test_what_is_below_the_start_goes() -> None:
    assert garbage(CONTIGUOUS, range(1, 15)) == list(range(1, 10))


@pytest.mark.parametrize(
    ("checkpoints", "expected"),
    [
        ([checkpoint(3, 5)], [1, 2, 6, 7, 8, 9]),
        ([checkpoint(3, None)], [1, 2]),
        ([checkpoint(3, 4), checkpoint(8, None, number=2)], [1, 2, 5, 6, 7]),
        ([checkpoint(5, 4)], list(range(1, 10))),  # a checkpoint of an empty log
    ],
)
def test_what_checkpoints_need_stays(checkpoints: list[Checkpoint], expected: list[int]) -> None:
    assert garbage(replace(CONTIGUOUS, checkpoints=tuple(checkpoints)), range(1, 15)) == expected


def test_a_log_object_that_became_an_sst_stays() -> None:
    assert garbage(CONTIGUOUS, range(7, 10), frozenset({contiguous_key(8)})) == [7, 9]


@pytest.mark.parametrize("size", [0, HEADER_BYTES])
def test_fences_stay_for_ever(size: int) -> None:
    assert LogJudge(CONTIGUOUS, frozenset(), None).why_garbage(info(contiguous_key(1), size)) is None


@pytest.mark.parametrize("key", ["log/manifest/current", "log/1.sst", epoch_key(1, 1)])
def test_what_is_no_log_object_stays(key: str) -> None:
    assert LogJudge(CONTIGUOUS, frozenset(), None).why_garbage(info(key)) is None


@pytest.mark.parametrize(
    ("epoch", "log_id", "why"),
    [
        (3, 9, COMPACTED),
        (5, 9, COMPACTED),
        (3, 12, None),
        (3, 13, OF_A_ZOMBIE),  # past the end of its closed range
        (4, 11, OF_A_ZOMBIE),  # never held the register there
        (5, 13, None),
        (5, 99, None),
        (6, 14, None),  # claimed after the register was read
        (5, 11, None),  # of the live epoch: not ours to judge
    ],
)
def test_epoch_prefixed_objects(epoch: int, log_id: int, why: str | None) -> None:
    assert LogJudge(PREFIXED, frozenset(), REGISTER).why_garbage(info(epoch_key(epoch, log_id))) == why


def test_positions_that_the_register_forgot_are_left_to_a_round_that_knows_why() -> None:
    """A newer state, which this round has not read, moved the log's start past them and may have pinned them first."""
    later = WriterRegister(6, "t", (EpochRange(6, 21),), last_written=20)
    assert LogJudge(PREFIXED, frozenset(), later).why_garbage(info(epoch_key(3, 12))) is None


def test_a_checkpoint_keeps_the_objects_of_the_epochs_that_own_its_positions() -> None:
    state = replace(PREFIXED, checkpoints=(checkpoint(2, 6, ((1, 1), (2, 4))),))
    judge = LogJudge(state, frozenset(), REGISTER)
    stays = [(e, n) for e in (1, 2) for n in range(1, 8) if judge.why_garbage(info(epoch_key(e, n))) is None]
    assert stays == [(1, 2), (1, 3), (2, 4), (2, 5), (2, 6)]


def test_a_checkpoint_without_ranges_keeps_everybodys() -> None:
    state = replace(PREFIXED, checkpoints=(checkpoint(8, None),))
    judge = LogJudge(state, frozenset(), REGISTER)
    assert judge.why_garbage(info(epoch_key(4, 11))) is None
    assert judge.why_garbage(info(epoch_key(4, 7))) == COMPACTED
