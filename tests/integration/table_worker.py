"""One process that uses a table, in one of several roles, until it is killed:

    table_worker.py ROLE PATH [--metastore M] [--name NAME] [--first N]

Roles and their lines (``failed TYPE MESSAGE`` in all of them, then it goes on):

* ``appender``: ``ack N``, from the append N on; each has an ``append_id``, and is repeated until it is in
* ``deleter``: ``deleting NAME N``, then ``deleted NAME N``: all rows of an append that it saw
* ``compactor``: ``compacted BLOCKS``, that were merged
* ``vacuum``: ``vacuumed OBJECTS``, that were deleted; it keeps nothing but the newest version
* ``reader``: ``seen ROWS``; ``torn NAME N COUNT`` if an append is not there as a whole, nor without any row
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter

import pyarrow as pa

import slate_async as slate
from slate_async import col

DATABASE, TABLE = "shop", "rows"
SCHEMA = pa.schema([("name", pa.string()), ("n", pa.int64()), ("at", pa.int64())])
ROWS = 3


def rows_of(name: str, n: int) -> pa.Table:
    """What the append ``n`` of ``name`` has."""
    return pa.table({"name": [name] * ROWS, "n": [n] * ROWS, "at": list(range(ROWS))}, SCHEMA)


async def count(table: slate.Table) -> Counter[tuple[str, int]]:
    """How many rows there are of each append."""
    found = await table.scan(columns=["name", "n"]).read()
    return Counter(zip(found.column("name").to_pylist(), found.column("n").to_pylist(), strict=True))


async def append(table: slate.Table, name: str, first: int) -> None:
    n = first
    while True:
        try:
            await table.append(rows_of(name, n), append_id=(name, n))
        except (slate.UnavailableError, slate.ConflictError) as error:
            print("failed", type(error).__name__, error, flush=True)
            continue
        print("ack", n, flush=True)
        n += 1


async def delete(table: slate.Table) -> None:
    while True:
        try:
            appends = sorted(await count(table))
            if appends:
                name, n = random.choice(appends)
                print("deleting", name, n, flush=True)
                await table.delete((col("name") == name) & (col("n") == n))
                print("deleted", name, n, flush=True)
        except (slate.UnavailableError, slate.ConflictError) as error:
            print("failed", type(error).__name__, error, flush=True)
        await asyncio.sleep(0.05)


async def compact(table: slate.Table) -> None:
    while True:
        try:
            result = await table.compact()
            print("compacted", result.blocks_read, flush=True)
        except slate.UnavailableError as error:
            print("failed", type(error).__name__, error, flush=True)
        await asyncio.sleep(random.uniform(0, 0.5))


async def vacuum(table: slate.Table) -> None:
    while True:
        try:
            report = await table.vacuum(retain_ms=0, retain_versions=1, min_age_ms=random.choice((0, 5_000)))
            print("vacuumed", report.objects, flush=True)
        except slate.UnavailableError as error:
            print("failed", type(error).__name__, error, flush=True)
        await asyncio.sleep(random.uniform(0, 1))


async def read(table: slate.Table) -> None:
    while True:
        try:
            found = await count(table)
        except (slate.UnavailableError, slate.SnapshotExpiredError) as error:
            print("failed", type(error).__name__, error, flush=True)
            continue
        for (name, n), rows in found.items():
            if rows != ROWS:
                print("torn", name, n, rows, flush=True)
        print("seen", found.total(), flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("appender", "deleter", "compactor", "vacuum", "reader"))
    parser.add_argument("path")
    parser.add_argument("--metastore")
    parser.add_argument("--name", default="")
    parser.add_argument("--first", type=int, default=1)
    chosen = parser.parse_args()
    async with slate.open_catalog(chosen.path, metastore=chosen.metastore) as catalog:
        await catalog.create_database(DATABASE, if_not_exists=True)
        table = await catalog.create_table(DATABASE, TABLE, SCHEMA, if_not_exists=True)
        if chosen.role == "appender":
            await append(table, chosen.name, chosen.first)
        elif chosen.role == "deleter":
            await delete(table)
        else:
            await {"compactor": compact, "vacuum": vacuum, "reader": read}[chosen.role](table)


if __name__ == "__main__":
    asyncio.run(main())
