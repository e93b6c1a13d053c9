"""What inspection shows is what is stored, whatever lies beside it."""

from __future__ import annotations

from uuid import UUID

import pytest

import slate_async as slate
from slate_async.codec.header import ObjectKind
from slate_async.storage.log.names import contiguous_key, epoch_key
from slate_async.storage.log.object_status import LogName, LogObjectStatus, Seen, classify, log_name
from slate_async.storage.log.recovery import EpochRange
from slate_async.storage.log.register import WriterRegister
from slate_async.storage.manifest.state import ManifestState
from tests.engine import CONTIGUOUS, EPOCHS, Kind
from tests.support.settled_town import admin, alter, bytes_of, settled
from tests.support.towns import CLONE, PARENT, Town


async def test_the_manifest_is_shown_whole(town: Town) -> None:
    async with admin(town) as opened:
        shown = await opened.inspect.manifest()
    state = await town.state(PARENT)
    assert shown.state == state
    assert shown.versions[-1] == state.ref
    assert (shown.base is None) == (shown.base not in shown.versions)


async def test_runs_are_shown_newest_first(town: Town) -> None:
    async with admin(town) as opened:
        runs = await opened.inspect.runs()
    state = await town.state(PARENT)
    assert [sst for run in runs for sst in run.ssts] == list(state.ssts())
    assert [run.run_id for run in runs] == [None] * len(state.l0) + [run.id for run in state.runs]
    assert sum(run.size for run in runs) == sum(sst.size for sst in state.ssts())
    for run in runs:
        assert run.first_key <= run.last_key
        assert 0 <= run.tombstone_share <= 1


async def test_an_sst_by_its_key_and_by_its_id(town: Town) -> None:
    sst = next((await town.state(PARENT)).ssts())
    async with admin(town) as opened:
        shown = await opened.inspect.sst(sst.location)
        assert await opened.inspect.sst(sst.object_id.hex()) == shown
        for wanted in ("sst/nothing.sst", "0" * 32, "nonsense"):
            with pytest.raises(slate.InvalidError, match="no SST"):
                await opened.inspect.sst(wanted)
    assert shown.named == sst
    assert (shown.header.object_id, shown.footer.size) == (sst.object_id, sst.size)
    assert sum(block.rows for block in shown.blocks) == shown.stats.rows == sst.rows
    assert shown.blocks[0].first_key == sst.first_key
    assert all(block.codec in ("none", "zstd", "lz4") and block.raw_bytes > 0 for block in shown.blocks)
    assert shown.filter_bits_per_key >= 10


async def test_a_clones_sst_is_found_in_its_parent(town: Town) -> None:
    async with admin(town) as opened:
        await opened.clone(CLONE)
    sst = next((await town.state(CLONE)).ssts())
    async with admin(town, CLONE) as opened:
        assert (await opened.inspect.sst(sst.location)).named == sst


async def test_the_log_is_shown_object_by_object(town: Town) -> None:
    async with admin(town) as opened:
        shown = await opened.inspect.log()
    state = await town.state(PARENT)
    assert [entry.key for entry in shown.objects] == [key for key in town.keys(PARENT) if log_name(shown.protocol, key)]
    logged = [entry for entry in shown.objects if entry.status == "valid"]
    assert sum(entry.rows or 0 for entry in logged) == (2 if town.kind.wal_enabled else 26)
    assert {entry.kind for entry in logged} == {"segment" if town.kind.wal_enabled else "sst"}
    assert all((entry.position >= state.log_start) for entry in logged)
    assert (shown.register is None) == (shown.protocol == "contiguous")
    assert any(entry.status == "fence" for entry in shown.objects) == (shown.protocol == "contiguous")


async def test_a_damaged_log_object_is_shown_as_such() -> None:
    town = await settled(Town(CONTIGUOUS))
    async with admin(town) as opened:
        key = next(entry.key for entry in (await opened.inspect.log()).objects if entry.status == "valid")
        data = bytes_of(town, key)
        for at, kind in ((3, "unreadable"), (len(data) - 1, "segment")):
            alter(town, key, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            [shown] = [entry for entry in (await opened.inspect.log()).objects if entry.key == key]
            assert (shown.status, shown.kind, shown.rows) == ("damaged", kind, None)


# ---- statuses by themselves


def state_of(kind: Kind, log_start: int, floor: int = 0) -> ManifestState:
    return ManifestState(UUID(int=1), kind.log_protocol, True, 0, log_start=log_start, log_floor=floor)


def test_the_contiguous_log_ends_at_a_gap_and_ignores_zombies() -> None:
    F, S = ObjectKind.FENCE, ObjectKind.LOG_SEGMENT
    objects = [(1, 1, F), (2, 1, S), (4, 1, S), (5, 2, F), (6, 1, S), (7, 2, S), (9, 2, S)]
    seen = [Seen(LogName(position, None), epoch, kind) for position, epoch, kind in objects]
    assert [str(status) for status in classify(state_of(CONTIGUOUS, 4), None, seen)] == [
        "fence", "compacted", "valid", "fence", "zombie", "valid", "pending"
    ]  # fmt: skip
    assert classify(state_of(CONTIGUOUS, 4, floor=2), None, seen)[2] is LogObjectStatus.ZOMBIE


def test_the_register_says_whose_positions_are() -> None:
    register = WriterRegister(3, "t", (EpochRange(1, 1, 4), EpochRange(3, 5)), 6)
    objects = [(1, 1), (3, 1), (5, 1), (5, 3), (6, 3), (7, 3)]
    seen = [Seen(LogName(position, epoch), epoch, ObjectKind.LOG_SEGMENT) for position, epoch in objects]
    assert [str(status) for status in classify(state_of(EPOCHS, 3), register, seen)] == [
        "compacted", "valid", "dead range", "valid", "valid", "pending"
    ]  # fmt: skip
    assert classify(state_of(EPOCHS, 3), None, seen)[1] is LogObjectStatus.DEAD


def test_names_of_the_other_protocol_are_none() -> None:
    assert log_name("contiguous", contiguous_key(7)) == (7, None)
    assert log_name("epoch_prefixed", epoch_key(2, 7)) == (7, 2)
    assert log_name("contiguous", epoch_key(2, 7)) is None
    assert log_name("epoch_prefixed", "log/readme") is None
