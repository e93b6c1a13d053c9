"""`slate_async.collections.verify`: batches whose bytes are sound, and which are not what is said of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from metastores.protocol import VersionRef
from slate_async.collections.codec.description import Description
from slate_async.collections.codec.life import Appends
from slate_async.collections.codec.pending import encode_pending
from slate_async.collections.codec.version import encode_version
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.names import MergedName, PendingName
from slate_async.collections.store.merged import MergedWriter
from tests.engine import InlineOffload
from tests.support.collection_bytes import BYTES, COLLECTION, byte_updates, frontier, put_batch
from tests.unit.collections.used import ROWS, TOKEN, UsedLake, flipped, texts

# ---- batches whose bytes are sound, and which say something else than they are


async def pend(lake: UsedLake, rows: pa.RecordBatch, *, compare: bool = False, **wrong: Any) -> str:
    """Put a batch from 40 to 50, whatever its rows are."""
    said = {"rows": rows.num_rows, "diff_sum": sum(rows.column("_diff").to_pylist()), **wrong}
    writer = "main" if compare else "a"
    description = Description(frontier(40), frontier(50), TOKEN, writer, said["rows"], said["diff_sum"])
    name = str(PendingName(writer, frontier(40), None if compare else frontier(50)))
    await lake.store.put(name, encode_pending(description, rows, BYTES, COLLECTION))
    return name


async def test_wrong_times_and_sums_of_a_pending_batch_are_found(lake: UsedLake) -> None:
    await lake.filled()
    name = await pend(lake, byte_updates((b"p", 39, 1), (b"q", 45, 1), (b"r", 50, 1)), diff_sum=7)
    assert texts((await lake.verified()).findings) == [
        f"{name}: a time outside of 40 to 50: data=b'p', _time=39, _diff=1, and 1 more",
        f"{name}: its differences add up to 3, and it says 7",
    ]


async def test_writers_that_wrote_different_updates_are_found(lake: UsedLake) -> None:
    await lake.filled()
    await lake.put([row for row in ROWS if row[1] >= 30], 30, 40, "b")
    await lake.put([(b"p", 42, 1)], 40, 50, "b")
    name = await pend(lake, byte_updates((b"p", 42, 2)))
    findings = texts((await lake.verified()).findings)
    assert len(findings) == 1
    assert "two writers wrote different updates at the same times" in findings[0]
    assert name in findings[0]


async def merged_elsewise(
    lake: UsedLake, rows: pa.RecordBatch, wrong: dict[str, Any] | None = None, part_bytes: int = 1 << 20
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
    rows: pa.RecordBatch, wrong: dict[str, Any], what: str, lake: UsedLake
) -> None:
    name = await merged_elsewise(lake, rows, wrong)
    assert texts((await lake.verified()).findings) == [f"{name}: {what}"]


async def test_a_sound_merged_batch_of_the_same_kind_is_clean(lake: UsedLake) -> None:
    await merged_elsewise(lake, SOUND)
    assert (await lake.verified()).clean


def long_rows(count: int) -> pa.RecordBatch:
    data = [b"%06d" % number + bytes(random.Random(number).randbytes(40)) for number in range(count)]
    return pa.RecordBatch.from_arrays(
        [pa.array(data), pa.array(np.full(count, 5, np.uint64)), pa.array(np.ones(count, np.int64))], schema=BYTES.arrow
    )


async def test_parts_of_a_large_batch_are_all_read(lake: UsedLake) -> None:
    await merged_elsewise(lake, long_rows(100_000), part_bytes=64 << 10)
    parts = [key for key in await lake.keys("merged_batches/") if ".p" in key]
    assert len(parts) == 2
    report = await lake.verified()
    assert report.clean, texts(report.findings)
    assert report.rows == 100_000
    await lake.change(parts[0], flipped(1000))
    await lake.store.delete([parts[1]])
    found = await lake.verified()
    assert {(finding.object_name, finding.what) for finding in found.findings} == {
        (parts[0], "the checksum does not match"),
        (parts[1], "is missing, though a version names it"),
    }
    assert found.rows < 100_000


@pytest.mark.parametrize("what", ["index", "part"])
async def test_every_byte_of_an_index_and_of_a_part_counts(what: str, lake: UsedLake) -> None:
    name = await merged_elsewise(lake, long_rows(100_000), part_bytes=64 << 10)
    key = name if what == "index" else f"{name}.p00001"
    data = (await lake.store.get(key)).data
    for place in range(0, len(data), max(1, len(data) // 25)):
        await lake.store.put(key, flipped(place)(data))
        found = {finding.object_name for finding in (await lake.verified()).findings}
        assert found == {key}, place
    await lake.store.put(key, data[:-1])
    assert not (await lake.verified()).clean


async def test_every_byte_of_a_batch_that_names_parts_counts(lake: UsedLake) -> None:
    said = Description(frontier(0), frontier(9), TOKEN, "a", 1, 1, part=0)
    name = PendingName("a", frontier(0), frontier(9))
    part = await lake.pending().put_part(replace(name, token=TOKEN, part=0), said, byte_updates((b"p", 5, 1)))
    await put_batch(lake.pending(), name, replace(said, part=None, parts=(part,)), None)
    assert (await lake.verified()).clean
    data = (await lake.store.get(str(name))).data
    for place in range(len(data)):
        await lake.store.put(str(name), flipped(place)(data))
        assert [finding.object_name for finding in (await lake.verified()).findings] == [str(name)], place


async def test_parts_of_a_pending_batch_are_all_read(lake: UsedLake) -> None:
    async with await lake.writer(Appends.DEFINITE) as writer, writer.batch(0, upper=10) as batch:
        for number in range(4):
            await batch.add([(b"%d" % number * 5_000_000, 3, 1)])
    parts = [key for key in await lake.keys("pending_batches/") if ".p" in key]
    assert len(parts) > 1
    assert (await lake.verified()).clean
    await lake.change(parts[0], flipped(500))
    await lake.store.delete(parts[1:2])
    findings = {finding.object_name: finding.what for finding in (await lake.verified()).findings}
    assert findings[parts[0]] == "the checksum does not match"
    assert findings[parts[1]].startswith("is missing, though pending_batches/")


async def test_parts_that_other_processes_put_belong_to_the_batch_that_names_them(lake: UsedLake) -> None:
    parts = []
    for number, token in enumerate(("1" * 32, "2" * 32), 5):
        said = Description(frontier(0), frontier(9), token, "a", 1, 1, part=number)
        name = PendingName("a", frontier(0), frontier(9), token, number)
        part = await lake.pending().put_part(name, said, byte_updates((b"p", number, 1)))
        parts.append(replace(part, token=token, number=number))
    whole = Description(frontier(0), frontier(9), TOKEN, "a", 2, 2, parts=tuple(parts))
    await put_batch(lake.pending(), PendingName("a", frontier(0), frontier(9)), whole, None)
    report = await lake.verified()
    assert (report.findings, report.notes, report.rows) == ((), (), 2)


# ---- chains of compare appends


async def test_a_batch_beside_the_chain_is_found(lake: UsedLake) -> None:
    await lake.compared()
    name = PendingName("main", frontier(17), None)
    await put_batch(lake.pending(), name, Description(frontier(17), frontier(30), TOKEN, "main", 0, 0), BYTES.empty())
    found = texts((await lake.verified(Appends.COMPARE)).findings)
    assert found == [f"{name}: it is on no chain: the one from the merged area goes to 25 without 17"]


async def test_a_batch_that_another_append_put_in_place_of_an_absorbed_one_is_found(lake: UsedLake) -> None:
    await lake.compared()
    name = str(PendingName("main", frontier(10), None))
    description = Description(frontier(10), frontier(15), TOKEN, "main", 1, 1)
    await lake.store.put(name, encode_pending(description, byte_updates((b"y", 12, 1)), BYTES, COLLECTION))
    found = texts((await lake.verified(Appends.COMPARE)).findings)
    assert len(found) == 1
    assert "the chain comes to 15 by another append than it says" in found[0]


async def test_appends_of_the_other_kind_are_notes(lake: UsedLake) -> None:
    await lake.compared()
    await lake.put([(b"p", 42, 1)], 0, 50, "b")
    report = await lake.verified(Appends.COMPARE)
    assert report.clean
    assert any("of another kind of appends" in note.what for note in report.notes)
