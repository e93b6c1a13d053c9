"""`tests.spark.exactly_once` sees what it is there for: a batch applied twice, one that is missing, and wrong rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import slate_async as slate
from tests.spark.exactly_once import Batch, applied, judged, keep, offsets, streamed

Rows = list[tuple[str, str | None]]
CHANGES: list[Rows] = [
    [("a", "1"), ("b", "1"), ("a", "2")],
    [("a", "3"), ("c", None)],
    [],
    [("b", "2"), ("a", "3")],
]
"""Of micro-batches: keys and values, ``None`` of a delete."""
APPLIED: list[Rows] = [[("a", "2"), ("b", "1")], [("a", "3"), ("c", None)], [("a", "3"), ("b", "2")]]
"""What a sink makes of them."""


async def written(path: Path) -> list[int]:
    """The source, and where its micro-batches end."""
    ends: list[int] = []
    async with slate.open(path) as db:
        for rows in CHANGES:
            for key, value in rows:
                if value is None:
                    await db.delete(key.encode())
                else:
                    await db.put(key.encode(), value.encode())
            ends.append(db.status().last_seq)
    return ends


async def sink(path: Path, batches: list[Rows]) -> None:
    async with slate.open(path):
        pass
    await keep(str(path))
    for number, rows in enumerate(batches):
        async with slate.open_ingest(path, job_id=f"{number}") as job:
            columns = {
                "key": [key.encode() for key, _ in rows],
                "value": [(value or "").encode() for _, value in rows],
                "op": ["put" if value is not None else "delete" for _, value in rows],
            }
            await job.write([pa.table(columns)])
            await job.commit(mode="exclusive")
    async with slate.open(path) as db:
        await db.compact(full=True)


async def judgement(folder: Path, batches: list[Rows]) -> str | None:
    ends = await written(folder / "source")
    await sink(folder / "copy", batches)
    expected = await streamed(str(folder / "source"), ends)
    assert [batch.changes for batch in expected] == [2, 2, 2]
    return judged(expected, await applied(str(folder / "copy")))


async def contents(path: Path) -> list[tuple[bytes, bytes]]:
    async with slate.open_reader(path) as reader:
        return [row async for row in reader.scan()]


async def test_each_batch_once_is_good(tmp_path: Path) -> None:
    assert await judgement(tmp_path, APPLIED) is None
    assert await contents(tmp_path / "source") == await contents(tmp_path / "copy")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda good: [*good, good[2]], "4 batches came in, not 3"),
        (lambda good: [*good[:2], good[1], good[2]], "comes again"),
    ],
    ids=["the last", "another"],
)
async def test_a_batch_applied_twice_is_reported_though_the_rows_are_equal(
    tmp_path: Path, spoil: Callable[[list[Rows]], list[Rows]], said: str
) -> None:
    told = await judgement(tmp_path, spoil(APPLIED))
    assert await contents(tmp_path / "source") == await contents(tmp_path / "copy")
    assert said in str(told)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda good: [good[0], good[2]],
        lambda good: [good[1], good[0], good[2]],
        lambda good: [[*good[0], *good[1][1:]], good[2]],
        lambda good: [good[0], [("a", "3"), ("c", "")], good[2]],
    ],
    ids=["one is missing", "out of order", "two in one", "another operation"],
)
async def test_anything_else_that_is_wrong_is_reported(
    tmp_path: Path, spoil: Callable[[list[Rows]], list[Rows]]
) -> None:
    assert await judgement(tmp_path, spoil(APPLIED)) is not None


def test_where_batches_end_is_in_sparks_checkpoint(tmp_path: Path) -> None:
    """A batch that was begun and not committed does not count."""
    for folder in ("commits", "offsets"):
        (tmp_path / folder).mkdir()
    for number, seq in enumerate((5, 9, 12)):
        (tmp_path / "offsets" / f"{number}").write_text(f"v1\n{{}}\n{json.dumps({'seq': seq})}")
    for number in range(2):
        (tmp_path / "commits" / f"{number}").touch()
        (tmp_path / "commits" / f".{number}.crc").touch()
    assert offsets(tmp_path) == [5, 9]


def test_the_first_difference_is_reported() -> None:
    one, other = Batch(1, 10), Batch(2, 20)
    assert judged([one, other], [one, other]) is None
    assert judged([one, other], [one]) == "1 batches came in, not 2"
    assert "comes again" in str(judged([one, other], [one, one, other]))
