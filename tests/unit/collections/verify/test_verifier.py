"""`slate_async.collections.verify`: a sound collection is clean while others use it; every kind of damage is found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metastores.envelope import Kind, seal, unseal
from metastores.protocol import VersionRef
from slate_async.collections.codec.description import Description
from slate_async.collections.codec.hold import decode_hold, encode_hold
from slate_async.collections.codec.life import Appends
from slate_async.collections.codec.pending import encode_pending
from slate_async.collections.codec.version import decode_version, encode_version
from slate_async.collections.core import holding
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.errors import LeaseLostError
from slate_async.collections.core.frontier import DONE
from slate_async.collections.core.names import MergedName, PendingName, hold_name
from slate_async.collections.store.merged import MergedWriter
from slate_async.collections.verify.holds import broken
from slate_async.collections.verify.report import CollectionFinding, CollectionVerifyProgress, CollectionVerifyReport
from slate_async.collections.verify.updates import UpdatesCheck, may_be_within
from slate_async.collections.verify.verifier import verify
from slate_async.errors import ClosedError
from slate_async.runtime.supervisor import Supervisor
from tests.engine import InlineOffload, ManualClock, StoreInHand, memory_store
from tests.support.collection_bytes import BYTES, COLLECTION, ORDERS, PAIR_UPDATES, U64, byte_updates, frontier
from tests.unit.collections.reader.conftest import Keeper, ReadLake, random_rows, revoke

ROWS = random_rows(random.Random(5), 40)
TOKEN = "ab" * 16


@pytest.fixture
async def lake() -> AsyncIterator[ReadLake]:
    """A collection in memory: three merged batches, of which one is large, and some that are pending."""
    supervisor = Supervisor("test", lambda cause: None)
    made = ReadLake(StoreInHand(memory_store()), supervisor)
    yield made
    for reader in made.readers:
        await reader.expire()
    for writer in made.opened:
        await writer.close()
    await supervisor.close()


async def filled(lake: ReadLake) -> Keeper:
    """Write, absorb, compact; a reader holds an older version, so there are several of them."""
    await put_from(lake, 0, 10)
    keeper = await Keeper.claim(lake)
    await keeper.round(merge=False)
    await lake.reader()
    await put_from(lake, 10, 20)
    await keeper.round()
    await put_from(lake, 20, 30)
    await put_from(lake, 20, 30, "b")
    await keeper.round(merge=False)
    await put_from(lake, 30, 35)
    await put_from(lake, 35, 40)
    return keeper


async def put_from(lake: ReadLake, lower: int, upper: int, writer: str = "a") -> None:
    await lake.put([row for row in ROWS if lower <= row[1] < upper], lower, upper, writer)


async def verified(lake: ReadLake, appends: Appends = Appends.DEFINITE) -> CollectionVerifyReport:
    return await verify(lake.reading(appends))


def texts(findings: tuple[CollectionFinding, ...]) -> list[str]:
    return [f"{finding.object_name}: {finding.what}" for finding in findings]


async def keys(lake: ReadLake, prefix: str) -> list[str]:
    return [info.key async for info in lake.store.list(prefix)]


async def change(lake: ReadLake, key: str, edit: Callable[[bytes], bytes]) -> None:
    await lake.store.put(key, edit((await lake.store.get(key)).data))


def flipped(place: int) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[place] ^= 1
        return bytes(changed)

    return flip


# ---- sound


async def test_a_sound_collection_is_clean(lake: ReadLake) -> None:
    keeper = await filled(lake)
    told: list[CollectionVerifyProgress] = []
    report = await verify(lake.reading(), told.append)
    assert report.clean, texts(report.findings)
    head = await keeper.versions.load()
    assert (report.version, report.epoch, report.upper) == (head.version, 1, "30")
    assert (report.versions, report.holds) == (head.version - head.floor + 1, 1)
    assert report.merged > len(head.names())
    assert report.pending >= 3
    assert {now.stage for now in told} == {"versions", "merged", "pending"}
    ends = {now.stage: now for now in told}
    assert ends["merged"].objects == ends["merged"].objects_total > 0
    assert ends["merged"].nbytes == ends["merged"].bytes_total > 0
    assert await keys(lake, "readers/") == [hold_name(lake.readers[0]._hold.handle.reader)]


async def test_an_empty_collection_is_clean(lake: ReadLake) -> None:
    report = await verified(lake)
    assert (report.findings, report.notes, report.version, report.rows) == ((), (), 0, 0)


@pytest.mark.parametrize("seed", range(6))
async def test_no_false_alarm_while_others_write_read_compact_and_collect(seed: int, lake: ReadLake) -> None:
    """Two writers, a controller with rounds, readers that come and go, and verifications one after another."""
    rng = random.Random(seed)
    appends = Appends.COMPARE if seed % 2 else Appends.DEFINITE
    running = True

    async def write(name: str) -> None:
        async with await lake.writer(appends, name) as writer:
            at = 0
            while at < 40:
                upper = min(40, at + rng.randrange(1, 4))
                rows = [row for row in ROWS if at <= row[1] < upper]
                if appends is Appends.COMPARE and name != "a":
                    break
                await writer.append(rows, lower=at, upper=upper)
                at = upper
                for _ in range(rng.randrange(30)):
                    await asyncio.sleep(0)

    async def control() -> None:
        keeper = await Keeper.claim(lake)
        while running:
            await keeper.round(merge=rng.random() < 0.5)
            await asyncio.sleep(0)

    async def come_and_go() -> None:
        while running:
            reader = await lake.reader(appends)
            for _ in range(rng.randrange(60)):
                await asyncio.sleep(0)
            await reader.expire()

    reports: list[CollectionVerifyReport] = []

    async def check() -> None:
        while running:
            reports.append(await verified(lake, appends))

    async with asyncio.TaskGroup() as group:
        others = [group.create_task(work()) for work in (control, come_and_go, check)]
        writers = [group.create_task(write(name)) for name in ("a", "b")]
        for writer in writers:
            await writer
        running = False
        for other in others:
            await other
    assert len(reports) > 1
    assert [text for report in reports for text in texts(report.findings)] == []
    assert reports[-1].version > reports[0].version or reports[0].version > 1


async def test_a_compare_collection_is_clean(lake: ReadLake) -> None:
    await compared(lake)
    report = await verified(lake, Appends.COMPARE)
    assert report.clean, texts(report.findings)
    assert report.pending >= 2


async def compared(lake: ReadLake) -> Keeper:
    async with await lake.writer(Appends.COMPARE) as writer:
        for upper in (5, 10):
            await writer.append([(b"x", upper - 1, 1)], lower=upper - 5, upper=upper)
        keeper = await Keeper.claim(lake)
        await keeper.round(merge=False)
        await lake.reader(Appends.COMPARE)
        await writer.append([(b"y", 12, 1)], lower=10, upper=15)
        await keeper.round(merge=False)
        for upper in (20, 25):
            await writer.append([(b"z", upper - 1, 1)], lower=upper - 5, upper=upper)
    return keeper


# ---- damaged bytes


async def damageable(lake: ReadLake) -> dict[str, str]:
    """One live object of each kind."""
    await filled(lake)
    head = await lake.versions().load()
    pending = [key for key in await keys(lake, "pending_batches/") if "00000000000000000030_" in key]
    versions = await keys(lake, "merged_areas/v0")
    return {
        "merged": head.names()[-1],
        "pending": pending[0],
        "hold": (await keys(lake, "readers/"))[0],
        "version": versions[-2],
        "head": versions[-1],
    }


@pytest.mark.parametrize("kind", ["merged", "pending", "hold", "version", "head"])
@pytest.mark.parametrize("place", [0, 9, 13, 20, 40, -40, -9, -1])
async def test_a_flipped_byte_is_found(kind: str, place: int, lake: ReadLake) -> None:
    key = (await damageable(lake))[kind]
    await change(lake, key, flipped(place))
    report = await verified(lake)
    assert report.findings
    assert key in {finding.object_name for finding in report.findings}, texts(report.findings)


@pytest.mark.parametrize("kind", ["merged", "pending", "hold", "version", "head"])
@pytest.mark.parametrize("left", [0, 7, 100, -1])
async def test_a_truncated_object_is_found(kind: str, left: int, lake: ReadLake) -> None:
    key = (await damageable(lake))[kind]
    await change(lake, key, lambda data: data[:left])
    assert not (await verified(lake)).clean


@pytest.mark.parametrize("kind", ["merged", "pending", "version"])
async def test_a_missing_object_is_found(kind: str, lake: ReadLake) -> None:
    key = (await damageable(lake))[kind]
    await lake.store.delete([key])
    if kind == "pending":  # of which nobody knew but those who look: only a gap says so
        report = await verified(lake)
        assert any("begins beyond 30" in text for text in texts(report.notes))
        return
    report = await verified(lake)
    assert any("is missing" in text for text in texts(report.findings)), texts(report.findings)


async def test_a_missing_pending_batch_that_was_absorbed_is_found(lake: ReadLake) -> None:
    await filled(lake)
    await lake.store.delete([key for key in await keys(lake, "pending_batches/") if "0010_" in key])
    report = await verified(lake)
    assert any("goes from 10 to 10 only, and version" in text for text in texts(report.findings)), texts(
        report.findings
    )


async def test_every_damaged_object_is_found_not_only_the_first(lake: ReadLake) -> None:
    found = await damageable(lake)
    others = [name for name in (await lake.versions().load()).names() if name != found["merged"]]
    damaged = [found["merged"], found["pending"], found["hold"], *others]
    for key in damaged:
        await change(lake, key, flipped(90 if key != found["hold"] else 30))
    report = await verified(lake)
    assert set(damaged) <= {finding.object_name for finding in report.findings}


async def test_with_a_damaged_head_the_rest_is_checked_all_the_same(lake: ReadLake) -> None:
    found = await damageable(lake)
    for kind in ("head", "pending", "hold"):
        await change(lake, found[kind], flipped(30))
    report = await verified(lake)
    assert {finding.object_name for finding in report.findings} == {found[kind] for kind in ("head", "pending", "hold")}
    assert (report.version, report.upper) == (0, "")


async def test_swapped_objects_are_found(lake: ReadLake) -> None:
    await filled(lake)
    pending = [key for key in await keys(lake, "pending_batches/a/") if key.rpartition("_")[2] > "0" * 18 + "30"]
    assert len(pending) == 2
    merged = (await lake.versions().load()).names()
    assert len(merged) == 2
    for first, second in (pending, merged):
        one, other = [(await lake.store.get(key)).data for key in (first, second)]
        await lake.store.put(first, other)
        await lake.store.put(second, one)
    report = await verified(lake)
    assert {*pending, *merged} <= {finding.object_name for finding in report.findings}


async def test_a_foreign_object_is_a_note(lake: ReadLake) -> None:
    await filled(lake)
    foreign = ["readme.txt", "merged_batches/mine", "pending_batches/a/x", "readers/R/hold", "merged_areas/v1"]
    for key in foreign:
        await lake.store.put(key, b"text")
    report = await verified(lake)
    assert report.clean
    noted = [note for note in report.notes if note.what.startswith("it does not belong to the collection")]
    assert {note.object_name for note in noted} == set(foreign)
    assert {note.size for note in noted} == {4}


async def test_a_batch_of_another_collection_is_found(lake: ReadLake) -> None:
    await filled(lake)
    description = Description(frontier(40), frontier(50), TOKEN, "a", 1, 1)
    data = encode_pending(description, byte_updates((b"q", 41, 1)), BYTES, type(COLLECTION)(int=5))
    name = str(PendingName("a", frontier(40), frontier(50)))
    await lake.store.put(name, data)
    assert f"{name}: belongs to collection {type(COLLECTION)(int=5)}, not {COLLECTION}" in texts(
        (await verified(lake)).findings
    )


# ---- what is garbage, and what waits


async def test_garbage_is_noted_with_its_size(lake: ReadLake) -> None:
    keeper = await filled(lake)
    left = MergedName(frontier(0), frontier(30), keeper.epoch, TOKEN)
    old = MergedName(frontier(0), frontier(30), 0, TOKEN)
    for name in (left, old):
        await lake.store.put(str(name), b"x" * 9)
    dead = str(PendingName("z", frontier(0), frontier(5)))
    part = str(PendingName("z", frontier(40), frontier(50), TOKEN, 0))
    for key in (dead, part):
        await lake.store.put(key, b"x" * 9)
    report = await verified(lake)
    assert report.clean, texts(report.findings)
    notes = {note.object_name: note for note in report.notes}
    assert notes[str(left)].what.endswith("a merge that goes on, or one that was given up")
    assert notes[str(old)].what.endswith("a controller deletes it")
    assert notes[dead].what.startswith("the merged area holds its times")
    assert notes[part].what.startswith("no batch names this part")
    assert {notes[key].size for key in (str(left), str(old), dead, part)} == {9}


async def test_an_append_that_waits_for_the_one_before_it_is_a_note(lake: ReadLake) -> None:
    await filled(lake)
    name = PendingName("c", frontier(50), frontier(60))
    await lake.pending().put(name, Description(frontier(50), frontier(60), TOKEN, "c", 0, 0), BYTES.empty())
    report = await verified(lake)
    assert report.clean
    assert any(note.object_name == str(name) and "begins beyond 40" in note.what for note in report.notes)


# ---- batches whose bytes are sound, and which say something else than they are


async def pend(lake: ReadLake, rows: pa.RecordBatch, *, compare: bool = False, **wrong: Any) -> str:
    """Put a batch from 40 to 50, whatever its rows are."""
    said = {"rows": rows.num_rows, "diff_sum": sum(rows.column("_diff").to_pylist()), **wrong}
    writer = "main" if compare else "a"
    description = Description(frontier(40), frontier(50), TOKEN, writer, said["rows"], said["diff_sum"])
    name = str(PendingName(writer, frontier(40), None if compare else frontier(50)))
    await lake.store.put(name, encode_pending(description, rows, BYTES, COLLECTION))
    return name


async def test_wrong_times_and_sums_of_a_pending_batch_are_found(lake: ReadLake) -> None:
    await filled(lake)
    name = await pend(lake, byte_updates((b"p", 39, 1), (b"q", 45, 1), (b"r", 50, 1)), diff_sum=7)
    assert texts((await verified(lake)).findings) == [
        f"{name}: a time outside of 40 to 50: data=b'p', _time=39, _diff=1, and 1 more",
        f"{name}: its differences add up to 3, and it says 7",
    ]


async def test_writers_that_wrote_different_updates_are_found(lake: ReadLake) -> None:
    await filled(lake)
    await lake.put([row for row in ROWS if row[1] >= 30], 30, 40, "b")
    await lake.put([(b"p", 42, 1)], 40, 50, "b")
    name = await pend(lake, byte_updates((b"p", 42, 2)))
    findings = texts((await verified(lake)).findings)
    assert len(findings) == 1
    assert "two writers wrote different updates at the same times" in findings[0]
    assert name in findings[0]


async def merged_elsewise(
    lake: ReadLake, rows: pa.RecordBatch, wrong: dict[str, Any] | None = None, part_bytes: int = 1 << 20
) -> str:
    """A head whose only batch holds ``rows`` from 0 to 10, compacted to 4, and says what is right but for ``wrong``."""
    name = MergedName(frontier(0), frontier(10), 1, TOKEN)
    writer = MergedWriter(lake.store, BYTES, name, InlineOffload(), part_bytes=part_bytes)
    for at in range(0, rows.num_rows, 40_000):
        await writer.add(rows.slice(at, 40_000))
    stored = await writer.finish()
    columns = {column: rows.column(column).to_pylist() for column in rows.schema.names}
    said = {
        "rows": stored.rows,
        "keys": len(set(columns["data"])),
        "times": len(set(columns["_time"])),
        "diff_sum": sum(columns["_diff"]),
        **(wrong or {}),
    }
    bounds = Bounds(frontier(0), frontier(10), frontier(4))
    batch = MergedBatch(
        str(name),
        bounds,
        said["rows"],
        said["keys"],
        said["times"],
        said["diff_sum"],
        stored.nbytes,
        stored.crc,
        stored.parts,
    )
    area = Area.first(frontier(0)).following(
        epoch=1, token="c" * 32, upper=frontier(10), since=frontier(4), bound=frontier(4), floor=1, batches=(batch,)
    )
    await lake.versions()._metastore.commit(VersionRef(1, TOKEN), encode_version(area))
    return str(name)


SOUND = byte_updates((b"a", 4, 1), (b"a", 6, 1), (b"b", 9, -1))


@pytest.mark.parametrize(
    ("rows", "wrong", "what"),
    [
        (SOUND, {"keys": 3}, "it has 2 different data, and a version says 3"),
        (SOUND, {"times": 2}, "it has 3 different times, and a version says 2"),
        (SOUND, {"diff_sum": 2}, "its differences add up to 1, and a version says 2"),
        (SOUND, {"rows": 4}, "3 updates in place of 4"),
        (
            byte_updates((b"b", 4, 1), (b"a", 4, 1)),
            {},
            "rows are not in the order of data and time: 2 rows",
        ),
        (
            byte_updates((b"a", 4, 1), (b"a", 4, 1)),
            {},
            "two updates of one data and time: data=b'a', _time=4, _diff=1",
        ),
        (
            byte_updates((b"a", 4, 0)),
            {},
            "a difference of 0, which says nothing: data=b'a', _time=4, _diff=0",
        ),
        (
            byte_updates((b"a", 3, 1)),
            {},
            "a time outside of 0 to 10, compacted to 4: data=b'a', _time=3, _diff=1",
        ),
        (
            byte_updates((b"a", 10, 1)),
            {},
            "a time outside of 0 to 10, compacted to 4: data=b'a', _time=10, _diff=1",
        ),
    ],
)
async def test_what_a_merged_batch_is_not_is_found(
    rows: pa.RecordBatch, wrong: dict[str, Any], what: str, lake: ReadLake
) -> None:
    name = await merged_elsewise(lake, rows, wrong)
    assert texts((await verified(lake)).findings) == [f"{name}: {what}"]


async def test_a_sound_merged_batch_of_the_same_kind_is_clean(lake: ReadLake) -> None:
    await merged_elsewise(lake, SOUND)
    assert (await verified(lake)).clean


def long_rows(count: int) -> pa.RecordBatch:
    data = [b"%06d" % number + bytes(random.Random(number).randbytes(40)) for number in range(count)]
    return pa.RecordBatch.from_arrays(
        [pa.array(data), pa.array(np.full(count, 5, np.uint64)), pa.array(np.ones(count, np.int64))], schema=BYTES.arrow
    )


async def test_parts_of_a_large_batch_are_all_read(lake: ReadLake) -> None:
    await merged_elsewise(lake, long_rows(100_000), part_bytes=64 << 10)
    parts = [key for key in await keys(lake, "merged_batches/") if ".p" in key]
    assert len(parts) == 2
    report = await verified(lake)
    assert report.clean, texts(report.findings)
    assert report.rows == 100_000
    await change(lake, parts[0], flipped(1000))
    await lake.store.delete([parts[1]])
    found = await verified(lake)
    assert {(finding.object_name, finding.what) for finding in found.findings} == {
        (parts[0], "the checksum does not match"),
        (parts[1], "is missing, though a version names it"),
    }
    assert found.rows < 100_000


async def test_a_damaged_index_is_found(lake: ReadLake) -> None:
    name = await merged_elsewise(lake, long_rows(100_000), part_bytes=64 << 10)
    await change(lake, name, flipped(60))
    assert [finding.object_name for finding in (await verified(lake)).findings] == [name]


async def test_parts_of_a_pending_batch_are_all_read(lake: ReadLake) -> None:
    async with await lake.writer(Appends.DEFINITE) as writer, writer.batch(0, upper=10) as batch:
        for number in range(4):
            await batch.add([(b"%d" % number * 5_000_000, 3, 1)])
    parts = [key for key in await keys(lake, "pending_batches/") if ".p" in key]
    assert len(parts) > 1
    assert (await verified(lake)).clean
    await change(lake, parts[0], flipped(500))
    await lake.store.delete(parts[1:2])
    findings = {finding.object_name: finding.what for finding in (await verified(lake)).findings}
    assert findings[parts[0]] == "the checksum does not match"
    assert findings[parts[1]].startswith("is missing, though pending_batches/")


# ---- versions


async def change_area(lake: ReadLake, key: str, edit: Callable[[Area], Area]) -> None:
    """Put another version in the place of one, in its metastore's envelope."""

    def changed(data: bytes) -> bytes:
        sealed = unseal(data, kind=Kind.MANIFEST, name=key)
        area = edit(decode_version(sealed.payload, sealed.ref.version, U64, object_name=key))
        return seal(replace(sealed, payload=encode_version(area)))

    await change(lake, key, changed)


async def test_versions_that_do_not_follow_are_found(lake: ReadLake) -> None:
    await filled(lake)
    versions = await keys(lake, "merged_areas/v0")
    number = int(versions[-1][-20:])

    def back(area: Area) -> Area:
        return replace(area, since=frontier(0), batches=(replace(area.batches[0], diff_sum=99), *area.batches[1:]))

    await change_area(lake, versions[-1], back)
    found = "\n".join(texts((await verified(lake)).findings))
    assert f"version {number}: it says other things of merged_batches/" in found
    assert "its differences add up to" in found


async def test_an_area_with_a_gap_is_found(lake: ReadLake) -> None:
    await filled(lake)
    versions = await keys(lake, "merged_areas/v0")
    number = int(versions[-1][-20:])

    def gap(area: Area) -> Area:
        return replace(area, batches=area.batches[1:])

    await change_area(lake, versions[-1], gap)
    found = texts((await verified(lake)).findings)
    assert any(f"version {number}: " in text and "the batch before it ends at 0" in text for text in found), found


async def test_what_was_absorbed_is_compared_with_what_is_pending(lake: ReadLake) -> None:
    await filled(lake)
    versions = await keys(lake, "merged_areas/v0")
    pending = [key for key in await keys(lake, "pending_batches/") if "batch_00000000000000000020_" in key]
    description = Description(frontier(20), frontier(30), TOKEN, "a", 1, 99)
    for key in pending:
        said = replace(description, writer=key.split("/")[1])
        await lake.store.put(key, encode_pending(said, byte_updates((b"q", 25, 99)), BYTES, COLLECTION))
    found = texts((await verified(lake)).findings)
    assert len(found) == 1
    assert found[0].startswith(f"version {int(versions[-1][-20:])}: what was absorbed from 10 to 30 adds up to ")
    assert pending


# ---- chains of compare appends


async def test_a_batch_beside_the_chain_is_found(lake: ReadLake) -> None:
    await compared(lake)
    name = PendingName("main", frontier(17), None)
    await lake.pending().put(name, Description(frontier(17), frontier(30), TOKEN, "main", 0, 0), BYTES.empty())
    found = texts((await verified(lake, Appends.COMPARE)).findings)
    assert found == [f"{name}: it is on no chain: the one from the merged area goes to 25 without 17"]


async def test_a_batch_that_another_append_put_in_place_of_an_absorbed_one_is_found(lake: ReadLake) -> None:
    await compared(lake)
    name = str(PendingName("main", frontier(10), None))
    description = Description(frontier(10), frontier(15), TOKEN, "main", 1, 1)
    await lake.store.put(name, encode_pending(description, byte_updates((b"y", 12, 1)), BYTES, COLLECTION))
    found = texts((await verified(lake, Appends.COMPARE)).findings)
    assert len(found) == 1
    assert "the chain comes to 15 by another append than it says" in found[0]


async def test_appends_of_the_other_kind_are_notes(lake: ReadLake) -> None:
    await compared(lake)
    await lake.put([(b"p", 42, 1)], 0, 50, "b")
    report = await verified(lake, Appends.COMPARE)
    assert report.clean
    assert any("of another kind of appends" in note.what for note in report.notes)


# ---- holds


async def test_a_hold_that_was_given_up_and_is_renewed_is_found(lake: ReadLake) -> None:
    await filled(lake)
    head = replace(await lake.versions().load(), floor=99, bound=frontier(99))
    handle = lake.readers[0]._hold
    before = await lake.holds().read_all([handle.handle.reader])
    assert broken(head, before, before) == []  # it may be one that is being registered
    await handle.write()
    after = await lake.holds().read_all([handle.handle.reader])
    [finding] = broken(head, before, after)
    assert "gave up all below 99, and its owner goes on with it" in finding.what
    honest = await lake.versions().load()
    assert broken(honest, before, after) == []


async def test_a_ghost_and_a_revoked_hold_are_notes(lake: ReadLake) -> None:
    await filled(lake)
    ghost = holding.Hold(1, frontier(0), 60_000, TOKEN)
    head = await lake.versions().load()
    await lake.store.put(hold_name("ghost"), encode_hold(replace(ghost, version=head.floor - 1)))
    await lake.store.put(hold_name("gone"), encode_hold(replace(ghost, revoked=True)))
    report = await verified(lake)
    assert report.clean
    notes = {note.object_name: note.what for note in report.notes}
    assert notes[hold_name("ghost")].endswith("it is being registered, or a ghost that ends with its lease")
    assert notes[hold_name("gone")] == "it was revoked; a controller removes it"


async def test_nothing_is_called_missing_by_a_verification_whose_hold_was_revoked(lake: ReadLake) -> None:
    found = await damageable(lake)
    plain_get = lake.store.get
    seen: list[str] = []

    async def get(key: str, *more: Any) -> Any:
        if key == found["merged"] and not seen:
            seen.append(key)
            await revoke(lake)
            await lake.store.delete([key])
        return await plain_get(key, *more)

    lake.store.get = get  # type: ignore[method-assign]
    with pytest.raises(LeaseLostError):
        await verify(lake.reading(clock=ManualClock()))
    assert seen


async def test_a_deleted_collection_has_nothing_to_verify(lake: ReadLake) -> None:
    keeper = await filled(lake)
    await keeper.versions.commits.commit(Tombstone(TOKEN))
    with pytest.raises(ClosedError, match="was deleted"):
        await verified(lake)


async def test_the_hold_of_a_verification_is_written_again_before_its_lease_ends(lake: ReadLake) -> None:
    await filled(lake)
    seen: list[int] = []
    plain_get = lake.store.get
    merged = (await lake.versions().load()).names()[0]

    async def get(key: str, *more: Any) -> Any:
        if key == merged:
            own = next(key for key in await keys(lake, "readers/") if lake.readers[0]._hold.handle.reader not in key)
            for _ in range(200):
                await asyncio.sleep(0)
                seen.append(decode_hold((await plain_get(own)).data, U64, object_name="h").beat)
        return await plain_get(key, *more)

    lake.store.get = get  # type: ignore[method-assign]
    assert (await verified(lake)).clean
    assert seen[-1] > seen[0]


# ---- times of pairs


def test_which_times_compaction_may_have_made() -> None:
    bounds = Bounds(frontier((0, 5), (3, 0)), frontier((6, 6)), frontier((4, 1), (2, 3)))
    least = (2, 1)
    written = [(a, b) for a in range(9) for b in range(9) if bounds.contains((a, b))]
    made = {(max(a, least[0]), max(b, least[1])) for a, b in written}
    pairs = [(a, b) for a in range(9) for b in range(9)]
    columns = tuple(np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    found = {pair for pair, fits in zip(pairs, may_be_within(columns, bounds), strict=True) if fits}
    assert found == made


def test_times_of_a_batch_whose_since_is_done_are_as_they_were() -> None:
    bounds = Bounds(frontier(3), frontier(6), DONE)
    times = (np.arange(8, dtype=np.uint64),)
    assert list(np.flatnonzero(may_be_within(times, bounds))) == [3, 4, 5]


def test_pairs_of_times_are_counted() -> None:
    bounds = Bounds(frontier((0, 0)), DONE, frontier((0, 0)))
    check = UpdatesCheck(ORDERS, bounds, compacted=True)
    check.add(pa.Table.from_batches([consolidate(PAIR_UPDATES, ORDERS)]))
    assert (check.rows, check.diff_sum, check.times, check.faults) == (3, 7, 3, [])
