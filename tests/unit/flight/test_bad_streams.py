"""Streams that are wrong, cut or slow: one clear status, nothing stored, and the server lives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slate_async.flight.actions import ACTIONS
from slate_async.rpc.flight_data import decode_data, encode_data
from slate_async.rpc.flight_messages import BatchEncoder, schema_message
from slate_async.rpc.wire import flight_pb2 as wire
from slate_async.settings.serving import ServeSettings
from slate_async.tables.core.wire import PutCommand, Ticket
from tests.engine import StoreInHand, memory_store, until
from tests.support.flight import SCHEMA, put, rows, served, stock
from tests.support.tables import fail_puts, store_in_hand

ORDERS = fl.FlightDescriptor.for_path("shop", "orders")
PATH = wire.FlightDescriptor(type=wire.FlightDescriptor.PATH, path=["shop", "orders"]).SerializeToString()
PUT = "/arrow.flight.protocol.FlightService/DoPut"
DOCUMENTED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.ABORTED,
}


def messages(table: pa.Table, descriptor: bytes = PATH) -> list[bytes]:
    encoder = BatchEncoder(table.schema)
    found = [schema_message(table.schema, descriptor=descriptor)]
    for batch in table.to_batches(max_chunksize=10):
        found += encoder.messages(batch)
    return found


async def sent(port: int, given: list[bytes]) -> tuple[grpc.StatusCode, str]:
    """The status of a DoPut of ``given``."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:

        async def requests() -> AsyncIterator[bytes]:
            for message in given:
                yield message

        call = channel.stream_stream(PUT)(requests())
        await _drained(call)
        return await call.code(), await call.details()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: [], "before its first message"),
        (lambda found: [found[1]], "has a descriptor"),
        (lambda found: [found[0], b"\xff\xff"], "no FlightData"),
        (lambda found: [found[0], encode_data(b"x" * 50, [b"y"])], "message 2 of the stream"),
        (lambda found: [found[0], encode_data(decode_data(found[1]).header, [b"short"])], "the body has 5"),
        (lambda found: [encode_data(b"", descriptor=b"\x0a\x05")], "no FlightDescriptor"),
        (lambda found: [encode_data(b"", descriptor=PATH)], "before its schema"),
        (lambda found: [found[0], found[0]], "neither rows nor a dictionary"),
    ],
)
async def test_streams_that_are_no_arrow_end_with_one_status(change: Any, said: str) -> None:
    async with served(memory_store()) as (catalog, server):
        code, text = await sent(server.port, change(messages(rows(0, 30))))
        assert (code, said in text) == (grpc.StatusCode.INVALID_ARGUMENT, True), text
        table = await catalog.table("shop", "orders")
        assert await table.version() == 1
        await stock(server, lambda client: put(client, ORDERS, rows(0, 3)))
        assert (await table.scan().read()).num_rows == 3


async def test_a_wrong_schema_is_named_before_anything_is_stored() -> None:
    store = StoreInHand(memory_store(), watch=".parquet")
    async with served(store) as (_, server):
        wrong = pa.table({"id": ["a"] * 100, "name": ["b"] * 100})
        code, text = await sent(server.port, messages(wrong)[:1])
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert all(word in text for word in ("'id'", "int64", "string"))
        assert not [key async for key in _keys(store) if ".parquet" in key]


async def _keys(store: Any) -> AsyncIterator[str]:
    async for page in store.list(""):
        for found in page if isinstance(page, list | tuple) else [page]:
            yield found.key


@pytest.mark.parametrize(
    ("descriptor", "code"),
    [
        (wire.FlightDescriptor(type=1, path=["shop", "none"]), grpc.StatusCode.NOT_FOUND),
        (wire.FlightDescriptor(type=1, path=["shop"]), grpc.StatusCode.INVALID_ARGUMENT),
        (wire.FlightDescriptor(type=2, cmd=b"{"), grpc.StatusCode.INVALID_ARGUMENT),
        (
            wire.FlightDescriptor(type=2, cmd=b'{"database": "shop", "table": "orders", "mode": "x"}'),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (wire.FlightDescriptor(), grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_descriptors_that_name_no_table(descriptor: Any, code: grpc.StatusCode) -> None:
    async with served(memory_store()) as (_, server):
        found, _ = await sent(server.port, messages(rows(0, 1), descriptor.SerializeToString())[:1])
        assert found is code


async def test_a_message_that_is_too_large_is_refused() -> None:
    limits = ServeSettings(message_bytes=65_536, put_memory_bytes=1 << 20)
    async with served(memory_store(), settings=limits) as (catalog, server):
        big = pa.table({"id": list(range(20_000)), "name": ["x"] * 20_000}, SCHEMA)
        encoder = BatchEncoder(SCHEMA)
        given = [schema_message(SCHEMA, descriptor=PATH), *encoder.messages(big.to_batches()[0])]
        code, text = await sent(server.port, given)
        assert (code, "larger than max" in text) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
        assert await (await catalog.table("shop", "orders")).version() == 1


@pytest.mark.parametrize("how", ["cancel", "break"])
async def test_a_stream_that_is_cut_commits_nothing(how: str) -> None:
    async with served(memory_store()) as (catalog, server):
        table = await catalog.table("shop", "orders")
        for count in range(1, 6):
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", [("grpc.use_local_subchannel_pool", 1)])
            call = channel.stream_stream(PUT)()
            for message in messages(rows(0, 10 * count)):
                await call.write(message)
            if how == "cancel":
                call.cancel()
            else:
                await channel.close(None)
            await channel.close()
        await until(lambda: not server.metrics()["rpc.streams"], "cut streams end")
        assert await table.version() == 1
        await stock(server, lambda client: put(client, ORDERS, rows(0, 3)))
        assert await table.version() == 2


async def test_memory_of_puts_is_bounded_and_given_back() -> None:
    limits = ServeSettings(message_bytes=1 << 20, put_memory_bytes=2 << 20)
    wide = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    async with served(memory_store(), tables={"wide": wide}, settings=limits) as (catalog, server):
        given = pa.table({"id": list(range(150_000)), "x": [0.5] * 150_000}, wide)
        path = fl.FlightDescriptor.for_path("shop", "wide")
        highest = 0

        async def watch() -> None:
            nonlocal highest
            while True:
                highest = max(highest, int(server.metrics()["flight.put.held_bytes"]))
                await asyncio.sleep(0.001)

        watching = asyncio.create_task(watch())
        answers = await asyncio.gather(
            *(stock(server, lambda client: put(client, path, given, max_chunksize=20_000)) for _ in range(3))
        )
        watching.cancel()
        assert all(json.loads(found[-1])["rows"] == 150_000 for found in answers)
        assert highest < (2 << 20) + 3 * (1 << 20)
        assert server.metrics()["flight.put.stalls"] > 0
        assert (await (await catalog.table("shop", "wide")).scan(columns=["id"]).read()).num_rows == 450_000
        await until(lambda: not server.metrics()["flight.put.held_bytes"], "what was held is given back")


async def test_a_slow_reader_holds_few_messages() -> None:
    limits = ServeSettings(batch_bytes=65_536)
    given = pa.table({"x": np.random.default_rng(1).random(6_000_000)})
    async with served(memory_store(), tables={"wide": given.schema}, settings=limits) as (catalog, server):
        await (await catalog.table("shop", "wide")).append(given)
        command = wire.FlightDescriptor(type=1, path=["shop", "wide"]).SerializeToString()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            service = "/arrow.flight.protocol.FlightService"
            info = wire.FlightInfo.FromString(await channel.unary_unary(f"{service}/GetFlightInfo")(command))
            ticket = info.endpoint[0].ticket.SerializeToString()
            call = channel.unary_stream(f"{service}/DoGet")(ticket)
            await call.read()
            await call.read()
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert server.metrics()["rpc.streams"] == 1
            call.cancel()
        await until(lambda: not server.metrics()["rpc.streams"], "what was held is given back")
        assert server.metrics()["flight.get.sent_bytes"] < given.nbytes / 2


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.data())
async def test_tickets_commands_and_bodies_of_any_kind_get_documented_statuses(data: st.DataObject) -> None:
    leaf = (
        st.none()
        | st.booleans()
        | st.integers(-(2**70), 2**70)
        | st.text(max_size=6)
        | st.just("shop")
        | st.just("orders")
    )
    value = st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    )
    names = st.sampled_from(
        [
            "database",
            "table",
            "where",
            "columns",
            "version",
            "blocks",
            "uuid",
            "append_id",
            "token",
            "schema_id",
            "limit",
        ]
    )
    body = st.binary(max_size=30) | st.dictionaries(names, value, max_size=8).map(
        lambda found: json.dumps(found).encode()
    )
    raw = data.draw(body)
    kind = data.draw(st.sampled_from(["ticket", "command", "action", "raw"]))
    service = "/arrow.flight.protocol.FlightService"
    async with served(memory_store()) as (_, server):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            if kind == "ticket":
                call = channel.unary_stream(f"{service}/DoGet")(wire.Ticket(ticket=raw).SerializeToString())
            elif kind == "command":
                descriptor = wire.FlightDescriptor(type=wire.FlightDescriptor.CMD, cmd=raw)
                call = channel.unary_unary(f"{service}/GetFlightInfo")(descriptor.SerializeToString())
            elif kind == "action":
                action = wire.Action(type=data.draw(st.sampled_from([*ACTIONS, "other"])), body=raw)
                call = channel.unary_stream(f"{service}/DoAction")(action.SerializeToString())
            else:
                method = data.draw(st.sampled_from(["DoGet", "DoAction", "ListFlights"]))
                call = channel.unary_stream(f"{service}/{method}")(raw)
            code = await call.code() if kind == "command" else await _drained(call)
            assert code in DOCUMENTED, (kind, raw, await call.details())


async def _drained(call: Any) -> grpc.StatusCode:
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return await call.code()


async def test_a_ticket_is_looked_up_again() -> None:
    async with served(memory_store()) as (catalog, server):
        table = await catalog.table("shop", "orders")
        await table.append(rows(0, 3))
        info = await stock(server, lambda client: client.get_flight_info(ORDERS))
        ticket = Ticket.decode(info.endpoints[0].ticket.ticket)
        forged = Ticket(**{**_fields(ticket), "blocks": ("data/other.parquet",)})
        with pytest.raises(pa.ArrowInvalid, match="does not have"):
            await stock(server, lambda client: client.do_get(fl.Ticket(forged.encoded())).read_all())
        other = Ticket(**{**_fields(ticket), "token": "0" * 32})
        with pytest.raises(KeyError, match="not kept any more"):
            await stock(server, lambda client: client.do_get(fl.Ticket(other.encoded())).read_all())
        await catalog.drop_table("shop", "orders")
        with pytest.raises(KeyError):
            await stock(server, lambda client: client.do_get(info.endpoints[0].ticket).read_all())
        await catalog.create_table("shop", "orders", SCHEMA)
        with pytest.raises(KeyError, match="another one now"):
            await stock(server, lambda client: client.do_get(info.endpoints[0].ticket).read_all())


def _fields(ticket: Ticket) -> dict[str, Any]:
    return {name: getattr(ticket, name) for name in ticket.__slots__}


async def test_an_unknown_outcome_names_its_append_id() -> None:
    store = store_in_hand()
    async with served(store, deadline_ms=2_000) as (_, server):
        fail_puts(store, "/manifest/", "request lost", times=10_000)
        command = PutCommand("shop", "orders", append_id=("job", 1)).encoded()
        descriptor = wire.FlightDescriptor(type=wire.FlightDescriptor.CMD, cmd=command).SerializeToString()
        code, text = await sent(server.port, messages(rows(0, 3), descriptor))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert 'outcome=unknown, append_id=["job", 1]' in text
