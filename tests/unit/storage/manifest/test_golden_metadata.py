"""The bytes of metadata, pinned: manifest versions, the objects metastores keep them in, the writer's register.

``SLATE_REGEN_GOLDEN=1`` writes the files anew; do that only for a change of format that ``docs/format`` and the
changelog tell of.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import count
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from msgspec import structs

from metastores import names
from metastores.factories import IfMatchFactory, PutIfAbsentFactory
from metastores.protocol import Cell, Committed, MetaStore, MetaStoreFactory, Record, Register, VersionRef
from metastores.runtime import MetaRuntime
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.storage.log import register as writer_register
from slate_async.storage.log.recovery import EpochRange
from slate_async.storage.log.register import EMPTY, WriterRegister
from slate_async.storage.manifest import codec
from slate_async.storage.manifest.state import (
    NO_VERSION,
    AppBatch,
    Checkpoint,
    Compaction,
    Ingest,
    IngestRecord,
    ManifestState,
    Mirrored,
    Parent,
    RangeOutput,
    SeqTime,
    SortedRun,
    SstRef,
)
from slate_async.types import NO_END, RangeDelete
from tests.engine import memory_store

GOLDEN = Path(__file__).parents[3] / "golden" / "metadata"
NAME = "memory://golden"


def sst(number: int, **more: object) -> SstRef:
    return SstRef(
        location=f"sst/{number:020}.{number:032x}.sst",
        object_id=number.to_bytes(16, "big"),
        size=1000 + number,
        rows=10,
        tombstones=number,
        first_key=b"\x00" * number,
        last_key=b"\xff" * number,
        min_seq=number * 10,
        max_seq=number * 10 + 9,
        writer_epoch=number,
        **more,  # type: ignore[arg-type]
    )


BASE = ManifestState(
    database_id=UUID("00112233-4455-6677-8899-aabbccddeeff"),
    log_protocol="epoch_prefixed",
    wal_enabled=False,
    created_ms=1_750_000_000_123,
    properties={"owner": "größe"},
    ref=VersionRef(32, "a" * 32),
    writer_epoch=7,
    writer_token="b" * 32,
    compactor_epoch=2,
    compactor_token="c" * 32,
    fence_width=4,
    log_start=300,
    log_last_seen=299,
    log_floor=6,
    last_seq=2**62,
    last_tick_ms=1_750_000_001_000,
    sst_floor=3,
    l0=(
        sst(
            5,
            min_expire_ms=1,
            max_expire_ms=2**41,
            global_seq=59,
            global_create_ms=7,
            unknown={"visible_end": b"z", "visible_first": b"a"},
        ),
        sst(4, unknown={"sparse": True}),
    ),
    last_run_id=2,
    runs=(SortedRun(2, (sst(2), sst(3, database_id=UUID(int=5))), level=1), SortedRun(1, (sst(1),), level=2)),
    checkpoints=(
        Checkpoint(UUID(int=11), VersionRef(31, "e" * 32), 17, "writer", 290, epoch=7),
        Checkpoint(
            UUID(int=12), VersionRef(20, "f" * 32), 18, "user", 200, 19, 299, ((5, 180), (7, 250)), name="nightly"
        ),
    ),
    compactions=(
        Compaction(
            UUID(int=13),
            epoch=2,
            base_version=30,
            expired_at_ms=1_750_000_000_999,
            keep_above=40,
            bottom=True,
            l0=((4).to_bytes(16, "big"),),
            runs=(2, 1),
            ssts=((3).to_bytes(16, "big"), (2).to_bytes(16, "big")),
            log_end=310,
            target_run=3,
            target_level=2,
            bounds=(b"g", b"p"),
            finished=(RangeOutput(0, (sst(7),)), RangeOutput(2, ())),
        ),
    ),
    parents=(Parent(UUID(int=5), "s3://bucket/parent", UUID(int=14)), Parent(UUID(int=6), "s3://bucket/root")),
    mirrored=Mirrored("s3://bucket/source", UUID(int=15), 28, 7, 2),
    ingests=(
        Ingest("nightly", 30, 1_750_000_000_500, 1_750_000_900_500),
        Ingest("stream-8", 31, 1_750_000_000_600, 1_750_000_900_600, True, (sst(8), sst(9)), "stream", 8),
    ),
    ingest_records=(
        IngestRecord("stream-7", "admitted", 1_750_000_000_700, 59, 10, "stream", 7),
        IngestRecord("test", "withdrawn", 1_750_000_000_800),
    ),
    ingest_apps=(AppBatch("stream", 7),),
    ingest_seq=59,
    retention_ms=60_000,
    history_floor=17,
    expiry_floor_ms=1_749_999_940_999,
    seq_times=(SeqTime(10, 1_750_000_000_200), SeqTime(59, 1_750_000_000_900)),
    required_features=("ingest", "marker"),
    store_id=UUID(int=77),
    marked=True,
    optional_features=("sparkle",),
    unknown={"later": [1, {"x": b"y"}]},
)
NEXT = replace(
    BASE,
    ref=VersionRef(33, "d" * 32),
    destroyed_at_ms=1_750_000_002_000,
    log_start=301,
    l0=(sst(6), BASE.l0[1]),
    runs=BASE.runs[1:],
    checkpoints=BASE.checkpoints[:1],
    compactions=(),
    ingests=BASE.ingests[1:],
    ingest_records=(*BASE.ingest_records[1:], IngestRecord("nightly", "expired", 1_750_000_901_000)),
    ingest_apps=(AppBatch("stream", 8),),
    seq_times=(*BASE.seq_times, SeqTime(69, 1_750_000_001_000)),
)
COUNTED = replace(
    BASE,
    ingests=(Ingest("q1/8", 31, 1_750_000_000_600, 1_750_000_900_600, True, (sst(8),), "stream", 8, query_id="q1"),),
    ingest_apps=(AppBatch("stream", 7, "q1"), AppBatch("other", 9)),
)
LEASED = replace(
    BASE,
    ingests=(
        Ingest("4f2e", 31, 1_750_000_000_600, 1_750_000_031_600, True, (sst(8),), leased=True),
        Ingest("9c1d", 32, 1_750_000_000_700, 1_750_086_400_700, leased=True),
    ),
    ingest_records=(IngestRecord("77aa", "expired", 1_750_000_000_800, leased=True),),
    required_features=(*BASE.required_features, "ingest_leases"),
)
DIGESTED = replace(
    BASE,
    ingests=(
        Ingest("load", 31, 1_750_000_000_600, 1_750_000_900_600, True, (sst(8),), digest=2**64 - 1),
        Ingest("next", 32, 1_750_000_000_700, 1_750_086_400_700),
    ),
    ingest_records=(IngestRecord("first", "admitted", 1_750_000_000_800, 59, 10, digest=0x1234_5678_9ABC_DEF0),),
)
MERGING = replace(BASE, merge_operator="add_i64", required_features=(*BASE.required_features, "merge"))
RANGED = replace(
    BASE,
    l0=(BASE.l0[0], sst(4, swept_seq=47)),
    range_deletes=(
        RangeDelete(45, b"\x00a", b"\xff", 1_750_000_000_400),
        RangeDelete(48, b"b", NO_END, 1_750_000_000_500, {"why": "later"}),
    ),
    required_features=(*BASE.required_features, "range_deletes"),
)
SWEPT = replace(RANGED, ref=NEXT.ref, range_deletes=(RANGED.range_deletes or ())[1:])
LONG = replace(BASE, runs=(SortedRun(8, tuple(sst(n) for n in (10, 12, 14, 16))),))
GROWN = replace(LONG, ref=NEXT.ref, runs=(SortedRun(8, tuple(sst(n) for n in (10, 13, 14, 16))),))
REGISTER = (
    EMPTY.claim(1, "1" * 32, inherited_end=0, log_start=1)
    .publish(4)
    .claim(3, "3" * 32, inherited_end=6, log_start=2)
    .publish(2**33)
)
FIRST, SECOND = VersionRef(1, "1" * 32), VersionRef(2, "2" * 32)
OBJECTS = {
    "put-if-absent-version.bin": names.MANIFEST.version_key(2),
    "put-if-absent-boundary.bin": names.MANIFEST.boundary_key(2),
    "if-match-body.bin": names.MANIFEST.body_key(SECOND),
    "if-match-pointer.bin": names.MANIFEST.current,
    "writer-register-object.bin": names.WRITER,
}
OLDER = "manifest-full-without-ingests.bin"
BYTES = {
    "manifest-full.bin": lambda: codec.encode_full(BASE),
    "manifest-full-with-queries.bin": lambda: codec.encode_full(COUNTED),
    "manifest-full-with-leases.bin": lambda: codec.encode_full(LEASED),
    "manifest-full-with-digests.bin": lambda: codec.encode_full(DIGESTED),
    "manifest-full-with-an-operator.bin": lambda: codec.encode_full(MERGING),
    "manifest-full-with-range-deletes.bin": lambda: codec.encode_full(RANGED),
    "manifest-delta-of-range-deletes.bin": lambda: codec.encode_delta(RANGED, SWEPT),
    "manifest-delta.bin": lambda: codec.encode_delta(BASE, NEXT),
    "manifest-delta-of-a-run.bin": lambda: codec.encode_delta(LONG, GROWN),
    "writer-register-value.bin": lambda: writer_register.encode(REGISTER),
}


class Keeper:
    """A factory's metadata in a store of its own, with tokens that count."""

    def __init__(self, factory: type[PutIfAbsentFactory | IfMatchFactory]) -> None:
        tokens = count(1)
        self.store: MemoryStore = memory_store()
        made: MetaStoreFactory = factory(MetaRuntime(token=lambda: f"{next(tokens):032x}"))
        self.manifest: MetaStore = made.manifest(MetaObjects(self.store), NAME)
        self.register: Register = made.register(MetaObjects(self.store), NAME)

    async def stored(self, name: str) -> bytes:
        return (await self.store.get(OBJECTS[name])).data


def keeper_of(name: str) -> Keeper:
    return Keeper(IfMatchFactory if name.startswith("if-match") else PutIfAbsentFactory)


async def made(name: str) -> bytes:
    """The bytes of this release."""
    if name in BYTES:
        return BYTES[name]()
    keeper = keeper_of(name)
    if name.startswith("writer-register"):
        tag = None
        for value in (b"first", b"second"):
            outcome = await keeper.register.compare_and_set(tag, value)
            assert isinstance(outcome, Committed)
            tag = outcome.value
    else:
        for ref in (FIRST, SECOND):
            assert isinstance(await keeper.manifest.commit(ref, b"payload %d" % ref.version), Committed)
        if "boundary" in name:
            await keeper.manifest.delete([FIRST])
    return await keeper.stored(name)


async def golden(name: str) -> bytes:
    """The pinned bytes, written first when asked to."""
    if os.environ.get("SLATE_REGEN_GOLDEN") == "1":
        (GOLDEN / name).write_bytes(await made(name))
    return (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("name", [*BYTES, *OBJECTS])
async def test_the_same_input_gives_the_same_bytes(name: str) -> None:
    assert await made(name) == await golden(name)


async def test_a_pinned_full_manifest_is_read() -> None:
    state = codec.decode(await golden("manifest-full.bin"), object_name="m")
    assert isinstance(state, ManifestState)
    assert replace(state, ref=BASE.ref) == BASE


async def test_a_pinned_manifest_that_says_which_queries_count_batches_is_read() -> None:
    state = codec.decode(await golden("manifest-full-with-queries.bin"), object_name="m")
    assert isinstance(state, ManifestState)
    assert replace(state, ref=BASE.ref) == COUNTED


async def test_a_pinned_manifest_with_leases_is_read() -> None:
    state = codec.decode(await golden("manifest-full-with-leases.bin"), object_name="m")
    assert isinstance(state, ManifestState)
    assert replace(state, ref=BASE.ref) == LEASED


async def test_a_pinned_manifest_with_digests_is_read() -> None:
    state = codec.decode(await golden("manifest-full-with-digests.bin"), object_name="m")
    assert isinstance(state, ManifestState)
    assert replace(state, ref=BASE.ref) == DIGESTED


async def test_a_pinned_manifest_with_a_merge_operator_is_read() -> None:
    state = codec.decode(await golden("manifest-full-with-an-operator.bin"), object_name="m")
    assert isinstance(state, ManifestState)
    assert replace(state, ref=BASE.ref) == MERGING


async def test_a_release_without_merge_operators_refuses_a_database_that_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = await golden("manifest-full-with-an-operator.bin")
    monkeypatch.setattr(codec, "KNOWN_FEATURES", codec.KNOWN_FEATURES - {"merge"})
    with pytest.raises(codec.NewerReleaseError, match="features this release does not have: merge"):
        codec.decode(data, object_name="m")


async def test_a_pinned_manifest_with_leases_is_refused_without_knowing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    data = await golden("manifest-full-with-leases.bin")
    monkeypatch.setattr(codec, "KNOWN_FEATURES", codec.KNOWN_FEATURES - {"ingest_leases"})
    with pytest.raises(codec.NewerReleaseError, match="ingest_leases"):
        codec.decode(data, object_name="m")


async def test_a_pinned_manifest_with_range_deletes_is_read_and_so_is_what_became_of_them() -> None:
    state = codec.decode(await golden("manifest-full-with-range-deletes.bin"), object_name="m")
    assert isinstance(state, ManifestState)
    assert replace(state, ref=BASE.ref) == RANGED
    delta = codec.decode(await golden("manifest-delta-of-range-deletes.bin"), object_name="m")
    assert isinstance(delta, codec.Delta)
    assert replace(codec.apply_delta(RANGED, delta, object_name="m"), ref=NEXT.ref) == SWEPT


def test_the_last_range_delete_may_go_and_the_first_one_come() -> None:
    none = replace(RANGED, ref=NEXT.ref, range_deletes=None)
    for base, state in ((RANGED, none), (none, RANGED)):
        delta = codec.decode(codec.encode_delta(base, state), object_name="m")
        assert isinstance(delta, codec.Delta)
        assert replace(codec.apply_delta(base, delta, object_name="m"), ref=state.ref) == state


async def test_a_pinned_manifest_with_range_deletes_is_refused_without_knowing_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = await golden("manifest-full-with-range-deletes.bin")
    monkeypatch.setattr(codec, "KNOWN_FEATURES", codec.KNOWN_FEATURES - {"range_deletes"})
    with pytest.raises(codec.NewerReleaseError, match="range_deletes"):
        codec.decode(data, object_name="m")


async def test_a_pinned_full_manifest_of_before_there_were_ingests_is_read() -> None:
    state = codec.decode((GOLDEN / OLDER).read_bytes(), object_name="m")
    [newest, oldest] = BASE.l0
    assert state == replace(
        BASE,
        ref=NO_VERSION,
        l0=(structs.replace(newest, global_create_ms=None), oldest),
        ingests=(),
        ingest_records=(),
        ingest_apps=(),
        ingest_seq=0,
        required_features=(),
        store_id=None,
        marked=False,
    )


async def test_a_pinned_delta_is_read() -> None:
    delta = codec.decode(await golden("manifest-delta.bin"), object_name="m")
    assert isinstance(delta, codec.Delta)
    assert replace(codec.apply_delta(BASE, delta, object_name="m"), ref=NEXT.ref) == NEXT


async def test_a_pinned_delta_of_a_run_is_read() -> None:
    delta = codec.decode(await golden("manifest-delta-of-a-run.bin"), object_name="m")
    assert isinstance(delta, codec.Delta)
    assert replace(codec.apply_delta(LONG, delta, object_name="m"), ref=GROWN.ref) == GROWN


async def test_a_pinned_register_value_is_read() -> None:
    data = await golden("writer-register-value.bin")
    expected = WriterRegister(3, "3" * 32, (EpochRange(1, 1, 6), EpochRange(3, 7)), 2**33)
    assert writer_register.decode(data) == expected
    assert msgspec.msgpack.decode(data) == {  # as docs/format/writer-register.md has it
        "format": 1,
        "epoch": 3,
        "token": "3" * 32,
        "ranges": [[1, 1, 6], [3, 7, None]],
        "last_written": 2**33,
    }


async def lay(keeper: Keeper, *names_of_objects: str) -> None:
    for name in names_of_objects:
        await keeper.store.put(OBJECTS[name], await golden(name))


async def test_a_pinned_version_beside_its_boundary_is_read() -> None:
    keeper = Keeper(PutIfAbsentFactory)
    await lay(keeper, "put-if-absent-version.bin", "put-if-absent-boundary.bin")
    assert await keeper.manifest.latest() == Record(SECOND, b"payload 2")
    assert await keeper.manifest.versions() == [SECOND]


async def test_a_pinned_pointer_and_its_body_are_read_and_written_over() -> None:
    keeper = Keeper(IfMatchFactory)
    await lay(keeper, "if-match-pointer.bin", "if-match-body.bin")
    assert await keeper.manifest.latest() == Record(SECOND, b"payload 2")
    third = VersionRef(3, "3" * 32)
    assert await keeper.manifest.commit(third, b"payload 3") == Committed(third)
    assert await keeper.manifest.latest() == Record(third, b"payload 3")


async def test_a_pinned_register_is_read_and_written_over() -> None:
    keeper = Keeper(PutIfAbsentFactory)
    await lay(keeper, "writer-register-object.bin")
    cell = await keeper.register.read()
    assert isinstance(cell, Cell)
    assert cell.value == b"second"
    assert isinstance(await keeper.register.compare_and_set(cell.tag, b"third"), Committed)


def test_every_pinned_file_is_tested() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {*BYTES, *OBJECTS, OLDER}
