"""Manifest bytes: round trips, deltas, unknown fields, damage."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import msgspec
import pytest
from msgspec import structs

from metastores.protocol import VersionRef
from slate_async.errors import CorruptionError, InvalidError
from slate_async.storage.manifest import codec
from slate_async.storage.manifest.state import Checkpoint, ManifestState, Parent, SeqTime, SortedRun, SstRef
from tests.support.sst_refs import sst


def checkpoint(number: int) -> Checkpoint:
    return Checkpoint(UUID(int=number), VersionRef(number, "b" * 32), 1, "user", 1, log_end=number)


STATE = ManifestState(
    database_id=UUID(int=7),
    log_protocol="contiguous",
    wal_enabled=True,
    created_ms=5,
    properties={"owner": "tests"},
    ref=VersionRef(32, "a" * 32),
    writer_epoch=3,
    l0=(sst(5), sst(4)),
    runs=(SortedRun(1, (sst(1), sst(2))), SortedRun(0, (sst(0),))),
)


LONG = replace(STATE, runs=(SortedRun(9, tuple(sst(n) for n in range(1000)), level=2), *STATE.runs))
"""A level of many SSTs."""


def full(state: ManifestState) -> ManifestState:
    decoded = codec.decode(codec.encode_full(state), object_name="m")
    assert isinstance(decoded, ManifestState)
    return replace(decoded, ref=state.ref)


def through_delta(base: ManifestState, state: ManifestState) -> ManifestState:
    delta = codec.decode(codec.encode_delta(base, state), object_name="m")
    assert isinstance(delta, codec.Delta)
    return replace(codec.apply_delta(base, delta, object_name="m"), ref=state.ref)


def test_full_round_trip() -> None:
    assert full(STATE) == STATE


@pytest.mark.parametrize(
    "changed",
    [
        replace(STATE, l0=(sst(6), *STATE.l0), log_start=9),
        replace(STATE, l0=(), runs=(SortedRun(2, (sst(4), sst(5))), *STATE.runs)),
        replace(STATE, l0=STATE.l0[:1], runs=()),
        replace(STATE, runs=(SortedRun(1, (sst(1),)), STATE.runs[1])),
        replace(STATE, runs=(STATE.runs[1], LONG.runs[0], STATE.runs[0])),
        replace(STATE, destroyed_at_ms=9),
        replace(STATE, heartbeat_interval_ms=30_000),
        replace(STATE, checkpoints=(checkpoint(2), checkpoint(1)), seq_times=(SeqTime(7, 8),)),
        replace(STATE, parents=(Parent(UUID(int=3), "file:///parent"),)),
        replace(STATE, unknown={"later": 1}),
        STATE,
    ],
)
def test_delta_round_trip(changed: ManifestState) -> None:
    changed = replace(changed, ref=VersionRef(33, "b" * 32))
    assert through_delta(STATE, changed) == changed


def test_a_delta_costs_what_it_changes() -> None:
    big = replace(STATE, l0=tuple(sst(n) for n in range(2000, 0, -1)))
    grown = replace(big, l0=(sst(2001), *big.l0))
    assert len(codec.encode_delta(big, grown)) < 400
    assert len(codec.encode_full(grown)) > 100_000


@pytest.mark.parametrize(
    "ssts",
    [
        (*LONG.runs[0].ssts[:400], sst(1001), sst(1002), *LONG.runs[0].ssts[403:]),
        LONG.runs[0].ssts[1:],
        (*LONG.runs[0].ssts, sst(1000)),
        tuple(structs.replace(sst, global_seq=5) if sst.rows == 7 else sst for sst in LONG.runs[0].ssts),
    ],
    ids=["inside", "first", "last", "an entry"],
)
def test_a_delta_of_a_long_run_costs_what_changes_in_it(ssts: tuple[SstRef, ...]) -> None:
    run = SortedRun(9, ssts, level=3, unknown={"later": 1})
    changed = replace(LONG, ref=VersionRef(33, "b" * 32), runs=(SortedRun(11, (sst(5000),)), run, LONG.runs[2]))
    encoded = codec.encode_delta(LONG, changed)
    assert len(encoded) < 1200
    assert encoded[8:10] == b"\x02\x00", "a release that would lose the SSTs refuses it"
    assert through_delta(LONG, changed) == changed


def test_a_run_that_holds_an_object_twice_is_written_whole() -> None:
    ssts = LONG.runs[0].ssts
    twice = (ssts[0], structs.replace(ssts[0], rows=1), *ssts[1:])
    changed = replace(LONG, ref=VersionRef(33, "b" * 32), runs=(SortedRun(9, twice),))
    assert through_delta(LONG, changed) == changed


@pytest.mark.parametrize("add", [[[4, {}]], [[1, {}], [0, {}]], [[-1, {}]]])
def test_entries_beside_the_list_are_corruption(add: list[list[object]]) -> None:
    base = {"base": [STATE.version, STATE.ref.token], "changed": {"seq_times": {"remove": [], "add": add}}}
    delta = codec.decode(codec._seal(codec.DELTA, base), object_name="m")
    assert isinstance(delta, codec.Delta)
    with pytest.raises(CorruptionError, match="does not apply"):
        codec.apply_delta(STATE, delta, object_name="m")


def test_fields_of_newer_releases_survive() -> None:
    body = msgspec.msgpack.decode(codec.encode_full(STATE)[codec.ENVELOPE.size :])
    body["later"] = [1, {"x": b"y"}]
    body["l0"][0]["sparse"] = True
    newer = codec.decode(codec._seal(codec.FULL, body), object_name="m")
    assert isinstance(newer, ManifestState)
    assert newer.unknown == {"later": [1, {"x": b"y"}]}
    again = msgspec.msgpack.decode(codec.encode_full(newer)[codec.ENVELOPE.size :])
    assert again["later"] == body["later"]
    assert again["l0"][0]["sparse"] is True
    delta = codec.decode(codec.encode_delta(newer, replace(newer, log_start=4)), object_name="m")
    assert isinstance(delta, codec.Delta)
    assert codec.apply_delta(newer, delta, object_name="m").unknown == newer.unknown


def test_unknown_required_features_are_refused() -> None:
    with pytest.raises(InvalidError, match="time-machine"):
        codec.decode(codec.encode_full(replace(STATE, required_features=("time-machine",))), object_name="m")
    relaxed = codec.decode(codec.encode_full(replace(STATE, optional_features=("sparkle",))), object_name="m")
    assert isinstance(relaxed, ManifestState)


def test_a_delta_of_another_base_is_refused() -> None:
    delta = codec.decode(codec.encode_delta(STATE, replace(STATE, log_start=4)), object_name="m")
    assert isinstance(delta, codec.Delta)
    with pytest.raises(CorruptionError, match="base"):
        codec.apply_delta(replace(STATE, ref=VersionRef(32, "c" * 32)), delta, object_name="m")


@pytest.mark.parametrize("encoded", [codec.encode_full(STATE), codec.encode_delta(STATE, replace(STATE, log_start=4))])
def test_every_flipped_byte_and_every_truncation_is_noticed(encoded: bytes) -> None:
    for position in range(len(encoded)):
        flipped = bytearray(encoded)
        flipped[position] ^= 0x41
        with pytest.raises((CorruptionError, InvalidError)):
            codec.decode(bytes(flipped), object_name="m")
        with pytest.raises(CorruptionError):
            codec.decode(encoded[:position], object_name="m")
