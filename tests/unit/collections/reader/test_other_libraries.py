"""`Snapshot.to_reader`: other libraries pull a snapshot's batches, and their answers are those of its rows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset
import pytest

import slate_async as slate
from slate_async.errors import InvalidError
from tests.unit.collections.reader.conftest import ReadLake

DATA = pa.schema([("customer", pa.string()), ("total", pa.int64())])
ROWS = 200_000
SUMS = "SELECT customer, sum(total * _diff) AS total, sum(_diff) AS orders FROM orders GROUP BY customer ORDER BY 1"
EXPECTED = [(name, sum(range(at, ROWS, 4)), ROWS // 4) for at, name in enumerate(("ann", "bob", "cid", "dan"))]


def sums_of(orders: pa.RecordBatchReader) -> list[tuple[str, int, int]]:
    """By DuckDB, which finds ``orders`` by its name."""
    return duckdb.connect().sql(SUMS).fetchall()


async def filled(lake: slate.Lake) -> slate.collections.ReadHandle:
    """``ROWS`` orders at time 0, of which some were merged."""
    reader = await lake.create("orders", data=DATA)
    numbers = range(ROWS)
    columns = {
        "customer": [("ann", "bob", "cid", "dan")[number % 4] for number in numbers],
        "total": list(numbers),
        "_time": pa.array([0] * ROWS, pa.uint64()),
        "_diff": [1] * ROWS,
    }
    async with lake.collection("orders").writer() as writer, writer.batch(upper=1) as batch:
        await batch.add(pa.table(columns))
    async with lake.collection("orders").controller(background=False) as controller:
        await controller.settle()
    return reader


async def test_duckdb_and_polars_pull_in_threads_while_the_loop_runs() -> None:
    async with slate.open_collections("memory://libraries/live", controller=False) as lake:
        reader = await filled(lake)
        async with await reader.snapshot(0) as snapshot:
            assert await asyncio.to_thread(sums_of, snapshot.to_reader()) == EXPECTED
            frame = await asyncio.to_thread(polars.from_arrow, snapshot.to_reader(expand=True))
            assert isinstance(frame, polars.DataFrame)
            sums = frame.group_by("customer").agg(polars.col("total").sum(), polars.len().alias("orders"))
            assert sums.sort("customer").rows() == EXPECTED


def test_the_same_without_await(tmp_path: Path) -> None:
    asyncio.run(_filled_at(str(tmp_path / "live")))
    with slate.sync.open_collections(tmp_path / "live", controller=False) as lake:
        with lake.collection("orders").reader() as reader, reader.snapshot(0) as snapshot:
            assert sums_of(snapshot.to_reader()) == EXPECTED
            assert snapshot.to_reader().schema == snapshot.schema() == snapshot.to_arrow().schema
            frame = polars.from_arrow(snapshot.to_reader())
            assert frame.shape == (ROWS, 4)
            pyarrow.dataset.write_dataset(snapshot.to_reader(expand=True), tmp_path / "out", format="parquet")
    assert pyarrow.dataset.dataset(tmp_path / "out").count_rows() == ROWS


async def _filled_at(path: str) -> None:
    async with slate.open_collections(path, controller=False) as lake:
        await (await filled(lake)).expire()


async def test_batches_are_read_one_by_one_when_they_are_wanted(
    lake: ReadLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.put([(str(number).encode(), 1, 1) for number in range(50)], 0, 10)
    async with await (await lake.reader()).snapshot(4) as snapshot:
        asked = list[int]()
        merged = snapshot._merged

        async def counted():  # type: ignore[no-untyped-def]
            async for batch in merged():
                for start in range(0, batch.num_rows, 10):
                    asked.append(start)
                    yield batch.slice(start, 10)

        monkeypatch.setattr(snapshot, "_merged", counted)
        batches = snapshot.to_reader()
        assert asked == []
        first = await asyncio.to_thread(batches.read_next_batch)
        assert (first.num_rows, len(asked)) == (10, 1)
        rest = await asyncio.to_thread(batches.read_all)
        assert (rest.num_rows, len(asked) > 1) == (40, True)


async def test_a_stream_says_what_is_wrong_with_its_use(lake: ReadLake) -> None:
    await lake.put([(b"a", 1, 1), (b"b", 2, -1)], 0, 10)
    reader = await lake.reader()
    async with await reader.snapshot(4) as snapshot:
        with pytest.raises(InvalidError, match="would wait for itself; read it in another thread"):
            snapshot.to_reader().read_all()
        with pytest.raises(InvalidError, match="there -1 times cannot be shown: data=b'b'"):
            await asyncio.to_thread(snapshot.to_reader(expand=True).read_all)
        late = snapshot.to_reader()
    with pytest.raises(InvalidError, match="the snapshot was closed"):
        await asyncio.to_thread(late.read_all)
