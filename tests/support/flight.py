"""Servers of tables in the test's own process, and the stock client in threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

import slate_async as slate
from slate_async.flight.serve import FlightServer, serve

T = TypeVar("T")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@asynccontextmanager
async def served(
    store: Any, *, tables: dict[str, pa.Schema] | None = None, deadline_ms: int = 30_000, **options: Any
) -> AsyncIterator[tuple[slate.Catalog, FlightServer]]:
    """A server of a catalog with ``tables`` in database ``shop``."""
    chosen = slate.Settings(retry_deadline_ms=deadline_ms)
    async with slate.open_catalog(store, name="memory://lake", settings=chosen) as catalog:
        await catalog.create_database("shop", if_not_exists=True)
        for name, schema in ({"orders": SCHEMA} if tables is None else tables).items():
            await catalog.create_table("shop", name, schema, if_not_exists=True)
        async with await serve(catalog, "127.0.0.1:0", **options) as server:
            yield catalog, server


async def stock(server: FlightServer, work: Callable[[fl.FlightClient], T], **options: Any) -> T:
    """What ``work`` does with a stock client, in a thread."""

    def run() -> T:
        scheme = "grpc+tls" if "tls_root_certs" in options else "grpc"
        with fl.connect(f"{scheme}://127.0.0.1:{server.port}", **options) as client:
            return work(client)

    return await asyncio.to_thread(run)


def rows(first: int, count: int) -> pa.Table:
    """Rows of `SCHEMA` with ids from ``first`` on."""
    ids = range(first, first + count)
    return pa.table({"id": list(ids), "name": [f"n{at}" for at in ids]}, schema=SCHEMA)


def put(client: fl.FlightClient, descriptor: fl.FlightDescriptor, table: pa.Table, **options: Any) -> list[bytes]:
    """All answers to a DoPut of ``table``."""
    writer, reader = client.do_put(descriptor, table.schema)
    writer.write_table(table, **options)
    writer.done_writing()
    answers = []
    while (answer := reader.read()) is not None:
        answers.append(answer.to_pybytes())
    writer.close()
    return answers


def get_all(client: fl.FlightClient, descriptor: fl.FlightDescriptor) -> pa.Table:
    """All rows of all endpoints."""
    info = client.get_flight_info(descriptor)
    return pa.concat_tables([client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints])
