"""Tables of slate_async, delta-rs and pyiceberg in a local folder, behind one face."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pyarrow.dataset as ds

import slate_async as slate
from slate_async import col
from tests.benchmarks.goals import OURS

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("sku", pa.string()),
        pa.field("price", pa.float64()),
        pa.field("stock", pa.int64()),
    ]
)


class Lake(Protocol):
    """One table. ``path``: of an empty folder. It is opened again for each read, as another process does."""

    name: ClassVar[str]
    module: ClassVar[str]

    async def create(self, path: str) -> None:
        """Create the table."""

    async def append(self, rows: pa.Table) -> None:
        """Add rows, durably."""

    async def scan(self) -> pa.Table:
        """All rows, by a reader that opens the table."""

    async def range(self, first: int, end: int) -> pa.Table:
        """Rows whose ids are between, by a reader that opens the table."""

    async def upsert(self, rows: pa.Table) -> None:
        """Put rows in the place of those with the same ids."""

    async def close(self) -> None:
        """Give up what is open."""


class Ours:
    """slate_async."""

    name: ClassVar[str] = OURS
    module: ClassVar[str] = "slate_async"

    async def create(self, path: str) -> None:
        self._path = path
        self._catalog = await slate.open_catalog(path)
        await self._catalog.create_database("bench")
        self.table = await self._catalog.create_table("bench", "rows", SCHEMA, key=["id"])

    async def append(self, rows: pa.Table) -> None:
        await self.table.append(rows)

    async def scan(self) -> pa.Table:
        return await self._read(None)

    async def range(self, first: int, end: int) -> pa.Table:
        return await self._read((col("id") >= first) & (col("id") < end))

    async def upsert(self, rows: pa.Table) -> None:
        await self.table.upsert(rows)

    async def close(self) -> None:
        await self._catalog.close()

    async def _read(self, where: Any) -> pa.Table:
        async with slate.open_catalog(self._path) as catalog:
            return await (await catalog.table("bench", "rows")).scan(where=where).read()


class Delta:
    """delta-rs."""

    name: ClassVar[str] = "delta-rs"
    module: ClassVar[str] = "deltalake"

    async def create(self, path: str) -> None:
        import deltalake

        self._lake, self._path = deltalake, path
        deltalake.DeltaTable.create(path, schema=SCHEMA)

    async def append(self, rows: pa.Table) -> None:
        self._lake.write_deltalake(self._path, rows, mode="append")

    async def scan(self) -> pa.Table:
        return self._lake.DeltaTable(self._path).to_pyarrow_table()

    async def range(self, first: int, end: int) -> pa.Table:
        found = self._lake.DeltaTable(self._path).to_pyarrow_dataset()
        return found.to_table(filter=(ds.field("id") >= first) & (ds.field("id") < end))

    async def upsert(self, rows: pa.Table) -> None:
        merge = self._lake.DeltaTable(self._path).merge(
            rows, predicate="new.id = old.id", source_alias="new", target_alias="old"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    async def close(self) -> None:
        pass


class Iceberg:
    """pyiceberg with its catalog in SQLite. Its upsert takes minutes, so it has none here."""

    name: ClassVar[str] = "pyiceberg"
    module: ClassVar[str] = "pyiceberg"

    async def create(self, path: str) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        self._options = {"uri": f"sqlite:///{path}/catalog.db", "warehouse": Path(path).as_uri()}
        self._kind = SqlCatalog
        catalog = SqlCatalog("bench", **self._options)
        catalog.create_namespace("bench")
        self.table = catalog.create_table("bench.rows", SCHEMA)

    async def append(self, rows: pa.Table) -> None:
        self.table.append(rows)

    async def scan(self) -> pa.Table:
        return self.opened().scan().to_arrow()

    async def range(self, first: int, end: int) -> pa.Table:
        return self.opened().scan(row_filter=f"id >= {first} and id < {end}").to_arrow()

    async def upsert(self, rows: pa.Table) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    def opened(self) -> Any:
        """The table, as another process has it."""
        return self._kind("bench", **self._options).load_table("bench.rows")


LAKES: Sequence[type[Lake]] = (Ours, Delta, Iceberg)


def rows_of(first: int, count: int) -> pa.Table:
    """Rows with the ids from ``first`` on."""
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "sku": pa.array([f"sku {at * 7919 % 100_003}" for at in ids]),
            "price": pa.array([at * 0.25 for at in ids], pa.float64()),
            "stock": pa.array([at % 97 for at in ids], pa.int64()),
        },
        SCHEMA,
    )
