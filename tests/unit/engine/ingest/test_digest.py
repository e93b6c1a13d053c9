"""A digest is that of a load's rows, in whatever order and by however many tasks; other rows have another one."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
import xxhash

import slate_async as slate
from slate_async.engine.ingest.digest import MODULUS, job_digest, rows_digest
from slate_async.engine.ingest.dry_run import rehearse
from slate_async.engine.ingest.rows import RowChecker
from slate_async.engine.ingest.spec import IngestedSst

PINNED = 9076209751529619153
Row = tuple[bytes, bytes | None, str, int | None]
ROWS: list[Row] = [
    (b"a", b"", "put", None),
    (b"aa", b"a", "put", 9_000),
    (b"ab", None, "delete", None),
    (b"b", b"x" * 300, "put", None),
    *((b"key-%05d" % number, b"%d" % (number * number), "put", None) for number in range(500)),
    *((b"wide-%05d" % number, bytes(5_000 + number), "put", 1_000 + number) for number in range(500)),
]


def batch(rows: list[Row]) -> pa.RecordBatch:
    keys, values, ops, times = zip(*rows, strict=True)
    expire_time = pa.array(times, pa.int64())
    return pa.record_batch({"key": keys, "value": pa.array(values, pa.binary()), "op": ops, "expire_time": expire_time})


def digest(*tasks: list[Row]) -> int:
    parts = [rehearse([batch(rows)], digest=True) for rows in tasks]
    return sum(part.digest or 0 for part in parts if part is not None) % MODULUS


def test_it_depends_neither_on_tasks_nor_on_batches() -> None:
    whole = digest(ROWS)
    for cut in (1, 3, 500, len(ROWS) - 1):
        assert digest(ROWS[cut:], ROWS[:cut]) == whole
        part = rehearse([batch(ROWS[:cut]), batch(ROWS[cut:])], digest=True)
        assert part is not None
        assert (part.digest, part.rows) == (whole, len(ROWS))


def test_it_depends_on_no_order() -> None:
    shuffled = list(range(len(ROWS)))
    random.Random(7).shuffle(shuffled)
    (columns, last) = (lambda checker: [*checker.take(batch(ROWS)), *checker.finish()])(RowChecker(0, "error"))
    counted = rows_digest(columns.take(np.array([at for at in shuffled if at < len(columns)])))
    assert (counted + rows_digest(last)) % MODULUS == digest(ROWS)


@pytest.mark.parametrize(
    "change",
    [
        lambda row: (row[0] + b"0", *row[1:]),
        lambda row: (row[0], (row[1] or b"") + b"\0", *row[2:]),
        lambda row: (row[0], b"" if row[1] else b"\0", *row[2:]),
        lambda row: (*row[:2], "delete", row[3]),
        lambda row: (*row[:3], 5_000 if row[3] is None else None),
    ],
    ids=["key", "longer", "shorter", "delete", "expires"],
)
@pytest.mark.parametrize("at", [0, 3, 4, 503, 504, 1_003])
def test_other_rows_have_another_one(at: int, change: Callable[[Row], Row]) -> None:
    changed = change(ROWS[at])
    assert digest([*ROWS[:at], changed, *ROWS[at + 1 :]]) != digest(ROWS)
    assert digest([*ROWS[:at], *ROWS[at + 1 :]]) != digest(ROWS)


def test_values_that_changed_places_are_other_rows() -> None:
    first, second = (b"a", b"1", "put", None), (b"b", b"2", "put", None)
    assert digest([first, second]) != digest([(b"a", b"2", "put", None), (b"b", b"1", "put", None)])


def test_when_a_row_expires_is_no_part_of_it() -> None:
    assert digest([(b"a", b"1", "put", 5_000)]) == digest([(b"a", b"1", "put", 6_000)])


def test_it_is_specified() -> None:
    """As docs/format/manifest.md has it; another release computes the same one."""
    bob = xxhash.xxh3_64_intdigest(b"Bob", xxhash.xxh3_64_intdigest(b"user:2") ^ 256)
    eve = xxhash.xxh3_64_intdigest(b"", xxhash.xxh3_64_intdigest(b"user:3") ^ 1)
    rows: list[Row] = [(b"user:2", b"Bob", "put", 5_000), (b"user:3", None, "delete", None)]
    assert digest(rows) == (bob + eve) % MODULUS == PINNED


def test_of_a_job_it_is_the_sum_of_its_calls() -> None:
    def sst(part: str, digest: int | None) -> IngestedSst:
        return IngestedSst("", b"", 0, 0, 0, b"", b"", 0, 0, 0, part=part, digest=digest)

    assert job_digest([]) == 0
    assert job_digest([sst("a", MODULUS - 1), sst("b", 3), sst("a", MODULUS - 1)]) == 2
    assert job_digest([sst("a", 1), sst("b", None)]) is None


@pytest.mark.parametrize("replace", [False, True], ids=["adds", "replaces"])
async def test_a_job_notes_what_all_its_calls_were_given(replace: bool) -> None:
    """Not what a job that replaces deletes by itself."""
    url = f"memory://digest-{replace}"
    async with slate.Environment() as env, env.open(url) as db:
        await db.put(b"aaa", b"old")
        await db.put(b"zzz", b"old")
        async with env.open_ingest(url, job_id="load", replace=replace) as job:
            await job.write(batch(ROWS[:100]), digest=True)
            async with env.open_ingest_task(url, job.spec) as task:
                results = await task.write(batch(ROWS[100:]), digest=True)
            pending = await job.commit([IngestedSst.from_json(sst.to_json()) for sst in results], wait=False)
            assert pending.digest == digest(ROWS)
            assert await job.wait() == await job.info()
            assert (await job.info()).digest == digest(ROWS)
        async with env.open_ingest(url, job_id="empty") as job:
            assert (await job.commit()).digest == 0
        async with env.open_ingest(url, job_id="not asked for") as job:
            await job.write(batch(ROWS))
            assert (await job.commit()).digest is None
