"""Every call, by the stock client of pyarrow."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from slate_async.tables.core.predicate import col
from slate_async.tables.core.wire import GetCommand, PutCommand, schema_text
from tests.engine import memory_store
from tests.support.flight import SCHEMA, get_all, put, rows, served, stock

ORDERS = fl.FlightDescriptor.for_path("shop", "orders")


async def test_rows_that_are_put_are_got() -> None:
    async with served(memory_store()) as (catalog, server):
        answers = await stock(server, lambda client: put(client, ORDERS, rows(0, 1_000), max_chunksize=100))
        assert json.loads(answers[-1])["rows"] == 1_000
        found = await stock(server, lambda client: get_all(client, ORDERS))
        assert found.sort_by("id").to_pydict() == rows(0, 1_000).to_pydict()
        assert (await (await catalog.table("shop", "orders")).scan().read()).num_rows == 1_000


async def test_info_names_a_version_and_its_rows() -> None:
    async with served(memory_store()) as (catalog, server):
        table = await catalog.table("shop", "orders")
        first = await table.append(rows(0, 10))
        info = await stock(server, lambda client: client.get_flight_info(ORDERS))
        assert (info.total_records, json.loads(info.app_metadata)["version"]) == (10, first.version)
        assert info.schema.names == SCHEMA.names
        await table.append(rows(10, 10))
        old = await stock(server, lambda client: client.do_get(info.endpoints[0].ticket).read_all())
        assert old.num_rows == 10


async def test_a_command_chooses_rows_columns_and_version() -> None:
    async with served(memory_store()) as (catalog, server):
        table = await catalog.table("shop", "orders")
        first = await table.append(rows(0, 10))
        await table.append(rows(10, 10))
        command = GetCommand("shop", "orders", first.version, ("name",), col("id") >= 8)
        found = await stock(server, lambda client: get_all(client, fl.FlightDescriptor.for_command(command.encoded())))
        assert found.to_pydict() == {"name": ["n8", "n9"]}


async def test_schema_flights_and_actions_are_listed() -> None:
    async with served(memory_store()) as (_, server):
        schema = await stock(server, lambda client: client.get_schema(ORDERS).schema)
        assert schema.names == SCHEMA.names
        flights = await stock(server, lambda client: [flight.descriptor.path for flight in client.list_flights()])
        assert flights == [[b"shop", b"orders"]]
        actions = await stock(
            server, lambda client: {action.type: action.description for action in client.list_actions()}
        )
        assert "create-table" in actions
        assert "if_not_exists" in json.loads(actions["create-table"])["body"]["properties"]


async def test_actions_create_and_delete() -> None:
    async with served(memory_store()) as (_, server):

        def work(client: fl.FlightClient) -> list[object]:
            def act(name: str, **body: object) -> object:
                return [
                    json.loads(found.body.to_pybytes()) for found in client.do_action((name, json.dumps(body).encode()))
                ]

            act("create-database", database="lake")
            act("create-table", database="lake", table="t", arrow_schema=schema_text(SCHEMA))
            put(client, fl.FlightDescriptor.for_path("lake", "t"), rows(0, 5))
            where = {"op": ">=", "column": "id", "value": 3}
            return [
                act("list-databases"),
                act("delete", database="lake", table="t", where=where),
                act("list-tables", database="lake"),
            ]

        databases, deleted, tables = await stock(server, work)
        assert databases == [{"database": "lake"}, {"database": "shop"}]
        assert deleted[0]["rows"] == 2
        assert tables == [{"table": "t"}]


async def test_a_put_with_the_same_append_id_is_in_once() -> None:
    async with served(memory_store()) as (catalog, server):
        command = PutCommand("shop", "orders", append_id=("job", 1)).encoded()
        descriptor = fl.FlightDescriptor.for_command(command)
        for duplicate in (False, True):
            answers = await stock(server, lambda client: put(client, descriptor, rows(0, 3)))
            assert json.loads(answers[-1])["duplicate"] is duplicate
        assert (await (await catalog.table("shop", "orders")).scan().read()).num_rows == 3
        body = json.dumps({"database": "shop", "table": "orders", "append_id": ["job", 1]}).encode()
        [found] = await stock(server, lambda client: list(client.do_action(("outcome", body))))
        assert json.loads(found.body.to_pybytes())["applied"] is True


@pytest.mark.parametrize("rows_a_batch", [7, 10_000])
async def test_dictionaries_and_nested_columns_come_back(rows_a_batch: int) -> None:
    given = pa.table(
        {
            "kind": pa.array(["a", "b", None] * 100).dictionary_encode(),
            "tags": pa.array([["x"], [], None] * 100),
            "at": pa.array([{"x": 1.5, "y": None}] * 300, pa.struct([("x", pa.float64()), ("y", pa.string())])),
        }
    )
    async with served(memory_store(), tables={"t": given.schema}) as (_, server):
        path = fl.FlightDescriptor.for_path("shop", "t")
        await stock(server, lambda client: put(client, path, given, max_chunksize=rows_a_batch))
        found = await stock(server, lambda client: get_all(client, path))
        assert found.to_pylist() == given.to_pylist()
