"""`slate_async.collections.verify.verifier`: no alarm while others use the collection; damaged bytes are found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from slate_async.collections.codec.description import Description
from slate_async.collections.codec.life import Appends
from slate_async.collections.codec.pending import encode_pending
from slate_async.collections.core.names import MergedName, PendingName, hold_name
from slate_async.collections.verify.report import CollectionVerifyProgress, CollectionVerifyReport
from slate_async.collections.verify.verifier import verify
from slate_async.objectstore.local import LocalStore
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import end_threads, system_runtime
from tests.engine import StoreInHand
from tests.support.collection_bytes import BYTES, COLLECTION, byte_updates, frontier, put_batch
from tests.unit.collections.used import ROWS, TOKEN, UsedLake, closed, flipped, texts

T = TypeVar("T")

# ---- sound


async def test_a_sound_collection_is_clean(lake: UsedLake) -> None:
    await lake.filled()
    progress: list[CollectionVerifyProgress] = []
    report = await verify(lake.reading(), progress.append)
    assert report.clean, texts(report.findings)
    head = await lake.head()
    assert (report.version, report.epoch, report.upper) == (head.version, 1, "30")
    assert (report.versions, report.holds) == (head.version - head.floor + 1, 1)
    assert report.merged > len(head.names())
    assert report.pending >= 3
    assert {now.stage for now in progress} == {"versions", "merged", "pending"}
    ends = {now.stage: now for now in progress}
    assert ends["merged"].objects == ends["merged"].objects_total > 0
    assert ends["merged"].nbytes == ends["merged"].bytes_total > 0
    assert await lake.keys("readers/") == [hold_name("r" * 32)]


async def test_an_empty_collection_is_clean(lake: UsedLake) -> None:
    report = await lake.verified()
    assert (report.findings, report.notes, report.version, report.rows) == ((), (), 0, 0)


@pytest.mark.parametrize("seed", range(6))
async def test_no_false_alarm_while_others_write_read_compact_and_collect(seed: int, lake: UsedLake) -> None:
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
        controller = await lake.controller(appends)
        while running:
            await controller.round()
            await controller.merge(everything=rng.random() < 0.5)

    async def come_and_go() -> None:
        while running:
            reader = await lake.reader(appends)
            for _ in range(rng.randrange(60)):
                await asyncio.sleep(0)
            await reader.expire()

    reports: list[CollectionVerifyReport] = []

    async def check() -> None:
        while running:
            reports.append(await lake.verified(appends))

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


async def test_a_compare_collection_is_clean(lake: UsedLake) -> None:
    await lake.compared()
    report = await lake.verified(Appends.COMPARE)
    assert report.clean, texts(report.findings)
    assert report.pending >= 2


# ---- damaged bytes


async def damageable(lake: UsedLake) -> dict[str, str]:
    """One live object of each kind."""
    await lake.filled()
    head = await lake.head()
    pending = [key for key in await lake.keys("pending_batches/") if "batch_00000000000000000030_" in key]
    versions = await lake.keys("merged_areas/v0")
    return {
        "merged": head.names()[-1],
        "pending": pending[0],
        "hold": (await lake.keys("readers/"))[0],
        "version": versions[-2],
        "head": versions[-1],
    }


@pytest.mark.parametrize("kind", ["merged", "pending", "hold", "version", "head"])
@pytest.mark.parametrize("place", [0, 9, 13, 20, 40, -40, -9, -1])
async def test_a_flipped_byte_is_found(kind: str, place: int, lake: UsedLake) -> None:
    key = (await damageable(lake))[kind]
    await lake.change(key, flipped(place))
    report = await lake.verified()
    assert report.findings
    assert key in {finding.object_name for finding in report.findings}, texts(report.findings)


@pytest.mark.parametrize("kind", ["merged", "pending", "hold", "version", "head"])
@pytest.mark.parametrize("left", [0, 7, 100, -1])
async def test_a_truncated_object_is_found(kind: str, left: int, lake: UsedLake) -> None:
    key = (await damageable(lake))[kind]
    await lake.change(key, lambda data: data[:left])
    assert not (await lake.verified()).clean


@pytest.mark.parametrize("kind", ["merged", "pending", "version"])
async def test_a_missing_object_is_found(kind: str, lake: UsedLake) -> None:
    key = (await damageable(lake))[kind]
    await lake.store.delete([key])
    if kind == "pending":  # of which nobody knew but those who look: only a gap says so
        report = await lake.verified()
        assert any("begins beyond 30" in text for text in texts(report.notes))
        return
    report = await lake.verified()
    assert any("is missing" in text for text in texts(report.findings)), texts(report.findings)


async def test_a_missing_pending_batch_that_was_absorbed_is_found(lake: UsedLake) -> None:
    await lake.filled()
    await lake.store.delete([key for key in await lake.keys("pending_batches/") if "0010_" in key])
    report = await lake.verified()
    assert any("goes from 10 to 10 only, and version" in text for text in texts(report.findings)), texts(
        report.findings
    )


async def test_lost_appends_that_nothing_names_show_in_how_far_it_reaches(lake: UsedLake) -> None:
    """An append is one object, and no other one knows of it until it is absorbed."""
    await lake.filled()
    whole = await lake.verified()
    assert (whole.upper, whole.reach) == ("30", "40")
    await lake.store.delete([key for key in await lake.keys("pending_batches/") if "0035_" in key])
    report = await lake.verified()
    assert (report.clean, report.upper, report.reach) == (True, "30", "35")


class Measuring:
    """Notes the most that Arrow has allocated, after each step of work."""

    def __init__(self) -> None:
        self.most = 0

    async def run(self, function: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        result = function()
        self.most = max(self.most, pa.total_allocated_bytes())
        return result


async def test_a_large_collection_is_verified_within_bounded_memory(lake: UsedLake) -> None:
    rng = np.random.default_rng(4)
    writer = await lake.writer(Appends.DEFINITE)
    for lower in range(16):
        data = pa.array(rng.integers(10**15, 10**16, 40_000)).cast(pa.string()).cast(pa.binary())
        columns = [data, pa.array([lower] * 40_000, pa.uint64()), pa.array([1] * 40_000, pa.int64())]
        await writer.append(pa.table(columns, schema=BYTES.arrow), upper=lower + 1)
    await (await lake.controller()).settle()
    context, measuring = lake.reading(), Measuring()
    before = pa.total_allocated_bytes()
    report = await verify(replace(context, runtime=replace(context.runtime, offload=measuring)))
    assert (report.clean, report.rows) == (True, 640_000)
    assert measuring.most - before < 8 << 20 < 640_000 * 36


async def test_files_without_the_end_of_an_object_are_found(tmp_path: Path) -> None:
    """A file of a local folder has a trailer of the store's own. Without it, it is listed, and is no object."""
    runtime = system_runtime()
    local = LocalStore(tmp_path, runtime)
    lake = UsedLake(StoreInHand(local), Supervisor("test", lambda cause: None))
    found = await damageable(lake)
    for kind in ("merged", "pending", "hold"):
        file = tmp_path / f"{found[kind]}.obj"
        file.write_bytes(file.read_bytes()[:-3])
    report = await lake.verified()
    assert {found[kind] for kind in ("merged", "pending", "hold")} <= {
        finding.object_name for finding in report.findings
    }, texts(report.findings)
    await closed(lake)
    await local.close()
    end_threads(runtime)


async def test_every_damaged_object_is_found_not_only_the_first(lake: UsedLake) -> None:
    found = await damageable(lake)
    others = [name for name in (await lake.head()).names() if name != found["merged"]]
    damaged = [found["merged"], found["pending"], found["hold"], *others]
    for key in damaged:
        await lake.change(key, flipped(90 if key != found["hold"] else 30))
    report = await lake.verified()
    assert set(damaged) <= {finding.object_name for finding in report.findings}


async def test_with_a_damaged_head_the_rest_is_checked_all_the_same(lake: UsedLake) -> None:
    found = await damageable(lake)
    for kind in ("head", "pending", "hold"):
        await lake.change(found[kind], flipped(30))
    report = await lake.verified()
    assert {finding.object_name for finding in report.findings} == {found[kind] for kind in ("head", "pending", "hold")}
    assert (report.version, report.upper) == (0, "")


async def test_swapped_objects_are_found(lake: UsedLake) -> None:
    await lake.filled()
    pending = [key for key in await lake.keys("pending_batches/a/") if key.rpartition("_")[2] > "0" * 18 + "30"]
    assert len(pending) == 2
    merged = (await lake.head()).names()
    assert len(merged) == 2
    for first, second in (pending, merged):
        one, other = [(await lake.store.get(key)).data for key in (first, second)]
        await lake.store.put(first, other)
        await lake.store.put(second, one)
    report = await lake.verified()
    assert {*pending, *merged} <= {finding.object_name for finding in report.findings}


async def test_a_foreign_object_is_a_note(lake: UsedLake) -> None:
    await lake.filled()
    foreign = ["readme.txt", "merged_batches/mine", "pending_batches/a/x", "readers/R/hold", "merged_areas/v1"]
    for key in foreign:
        await lake.store.put(key, b"text")
    report = await lake.verified()
    assert report.clean
    noted = [note for note in report.notes if note.what.startswith("it does not belong to the collection")]
    assert {note.object_name for note in noted} == set(foreign)
    assert {note.size for note in noted} == {4}


async def test_a_batch_of_another_collection_is_found(lake: UsedLake) -> None:
    await lake.filled()
    description = Description(frontier(40), frontier(50), TOKEN, "a", 1, 1)
    data = encode_pending(description, byte_updates((b"q", 41, 1)), BYTES, UUID(int=5))
    name = str(PendingName("a", frontier(40), frontier(50)))
    await lake.store.put(name, data)
    assert f"{name}: belongs to collection {UUID(int=5)}, not {COLLECTION}" in texts((await lake.verified()).findings)


# ---- what is garbage, and what waits


async def test_garbage_is_noted_with_its_size(lake: UsedLake) -> None:
    controller = await lake.filled()
    left = MergedName(frontier(0), frontier(30), controller.epoch, TOKEN)
    old = MergedName(frontier(0), frontier(30), 0, TOKEN)
    for name in (left, old):
        await lake.store.put(str(name), b"x" * 9)
    dead = str(PendingName("z", frontier(0), frontier(5)))
    part = str(PendingName("z", frontier(40), frontier(50), TOKEN, 0))
    for key in (dead, part):
        await lake.store.put(key, b"x" * 9)
    report = await lake.verified()
    assert report.clean, texts(report.findings)
    notes = {note.object_name: note for note in report.notes}
    assert notes[str(left)].what.endswith("a merge that goes on, or one that was given up")
    assert notes[str(old)].what.endswith("a controller deletes it")
    assert notes[dead].what.startswith("the merged area holds its times")
    assert notes[part].what.startswith("no batch names this part")
    assert {notes[key].size for key in (str(left), str(old), dead, part)} == {9}


async def test_an_append_that_waits_for_the_one_before_it_is_a_note(lake: UsedLake) -> None:
    await lake.filled()
    name = PendingName("c", frontier(50), frontier(60))
    await put_batch(lake.pending(), name, Description(frontier(50), frontier(60), TOKEN, "c", 0, 0), BYTES.empty())
    report = await lake.verified()
    assert report.clean
    assert any(note.object_name == str(name) and "begins beyond 40" in note.what for note in report.notes)
