"""The Flight service: each call of the protocol, by what the other modules of this package do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import grpc

from slate_async.errors import InvalidError, NotFoundError
from slate_async.flight.actions import ACTIONS, act
from slate_async.flight.auth import Authenticator, Caller, basic_credentials
from slate_async.flight.get_stream import GetStream
from slate_async.flight.put_memory import PutMemory
from slate_async.flight.put_stream import PutStream
from slate_async.rpc.server import Context, Method, RpcServer
from slate_async.rpc.statuses import StatusError
from slate_async.rpc.wire import flight_pb2 as wire
from slate_async.runtime.protocol import Runtime
from slate_async.settings.serving import ServeSettings
from slate_async.tables.catalog import Catalog
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.wire import GetCommand, json_object
from slate_async.tables.parts import Parts, parts_of
from slate_async.tables.table import Table

SERVICE: Final = "arrow.flight.protocol.FlightService"


class FlightService:
    """The methods of one server. ``served``: rows and bytes, by direction."""

    def __init__(
        self,
        catalog: Catalog,
        server: RpcServer,
        authenticator: Authenticator,
        runtime: Runtime,
        settings: ServeSettings,
    ) -> None:
        self._catalog = catalog
        self._server = server
        self._authenticator = authenticator
        self._runtime = runtime
        self._settings = settings
        self._memory = PutMemory(settings.put_memory_bytes)
        self._logins = asyncio.Semaphore(settings.handshakes)
        self._served = dict.fromkeys(("get.rows", "get.sent_bytes", "put.rows", "put.received_bytes", "actions"), 0)

    def methods(self) -> Mapping[str, Method]:
        """By name."""
        return {
            "Handshake": Method(self._handshake, requests=True, answers=True),
            "ListFlights": Method(self._list_flights, answers=True),
            "GetFlightInfo": Method(self._get_flight_info),
            "GetSchema": Method(self._get_schema),
            "DoGet": Method(self._do_get, answers=True, long=True),
            "DoPut": Method(self._do_put, requests=True, answers=True, long=True),
            "DoAction": Method(self._do_action, answers=True),
            "ListActions": Method(self._list_actions, answers=True),
            "PollFlightInfo": Method(_not_served),
            "DoExchange": Method(_not_served, requests=True, answers=True),
        }

    def metrics(self) -> dict[str, int | float]:
        """By dotted name."""
        return {
            **{f"flight.{name}": count for name, count in self._served.items()},
            "flight.put.held_bytes": self._memory.held_bytes,
            "flight.put.stalls": self._memory.stalls,
            "flight.auth_failures": self._authenticator.failures,
        }

    async def _handshake(self, request: Any, context: Context) -> None:
        given = basic_credentials(context.invocation_metadata())
        if given is None:
            message = await self._server.read(context)
            given = _password(message)
        async with self._logins:
            token = await self._authenticator.log_in(*given)
        await context.send_initial_metadata((("authorization", f"Bearer {token}"),))
        await self._server.write(context, wire.HandshakeResponse(payload=token.encode()).SerializeToString())

    async def _list_flights(self, request: bytes, context: Context) -> None:
        caller = self._caller(context)
        criteria = json_object(_parsed(wire.Criteria, request).expression, "a criteria")
        if set(criteria) - {"database"} or not isinstance(criteria.get("database", ""), str):
            raise InvalidError('a criteria is empty, or {"database": …}')
        async for info in self._flights(caller, criteria.get("database")):
            await self._server.write(context, info.SerializeToString())

    async def _flights(self, caller: Caller, only: str | None) -> AsyncGenerator[Any]:
        for database in [only] if only is not None else await self._catalog.list_databases():
            if only is None and not caller.may("read", database):
                continue
            caller.require("read", database)
            for name in await self._catalog.list_tables(database):
                try:
                    table = await self._catalog.table(database, name)
                    schema = await table.schema()
                except NotFoundError:  # it was dropped meanwhile
                    continue
                descriptor = wire.FlightDescriptor(type=wire.FlightDescriptor.PATH, path=[database, name])
                yield wire.FlightInfo(
                    schema=schema.serialize().to_pybytes(),
                    flight_descriptor=descriptor,
                    total_records=-1,
                    total_bytes=-1,
                )

    async def _get_flight_info(self, request: bytes, context: Context) -> bytes:
        descriptor = _parsed(wire.FlightDescriptor, request)
        table, command = await self._asked(descriptor, context)
        with expired_as_not_found():
            parts = await parts_of(table, command, self._settings.endpoint_bytes)
        made: bytes = _info(descriptor, command, parts).SerializeToString()
        return made

    async def _get_schema(self, request: bytes, context: Context) -> bytes:
        table, command = await self._asked(_parsed(wire.FlightDescriptor, request), context)
        with expired_as_not_found():
            parts = await parts_of(table, command, self._settings.endpoint_bytes)
        made: bytes = wire.SchemaResult(schema=parts.schema.serialize().to_pybytes()).SerializeToString()
        return made

    async def _asked(self, descriptor: Any, context: Context) -> tuple[Table, GetCommand]:
        caller = self._caller(context)
        command = get_command(descriptor)
        caller.require("read", command.database)
        return await self._catalog.table(command.database, command.table), command

    async def _do_get(self, request: bytes, context: Context) -> None:
        stream = GetStream(
            self._catalog, self._server, self._runtime, context, self._caller(context), self._settings.batch_bytes
        )
        try:
            with expired_as_not_found():
                await stream.run(request)
        finally:
            self._served["get.rows"] += stream.rows
            self._served["get.sent_bytes"] += stream.nbytes

    async def _do_put(self, request: Any, context: Context) -> None:
        stream = PutStream(
            self._catalog, self._server, self._memory, self._runtime, context, lambda: self._caller(context)
        )
        try:
            await stream.run()
        finally:
            self._served["put.rows"] += stream.rows
            self._served["put.received_bytes"] += stream.nbytes

    async def _do_action(self, request: bytes, context: Context) -> None:
        caller = self._caller(context)
        action = _parsed(wire.Action, request)
        self._served["actions"] += 1
        for line in await act(self._catalog, action.type, action.body, caller):
            await self._server.write(context, wire.Result(body=line).SerializeToString())

    async def _list_actions(self, request: bytes, context: Context) -> None:
        self._caller(context)
        for name, action in sorted(ACTIONS.items()):
            found = wire.ActionType(type=name, description=action.described)
            await self._server.write(context, found.SerializeToString())

    def _caller(self, context: Context) -> Caller:
        return self._authenticator.caller(context.invocation_metadata(), context.auth_context())


@contextmanager
def expired_as_not_found() -> Iterator[None]:
    """A version that is not kept any more is not found; the text names the newest one."""
    try:
        yield
    except SnapshotExpiredError as error:
        error.code = grpc.StatusCode.NOT_FOUND  # type: ignore[attr-defined]  # see slate_async.rpc.server
        raise


def get_command(descriptor: Any) -> GetCommand:
    """What a descriptor asks for. Raises `InvalidError`."""
    if descriptor.type == wire.FlightDescriptor.PATH:
        if len(descriptor.path) != 2:
            raise InvalidError(f"the path of a table is its database and its name, not {list(descriptor.path)!r:.200}")
        return GetCommand(*descriptor.path)
    if descriptor.type == wire.FlightDescriptor.CMD:
        return GetCommand.decode(descriptor.cmd)
    raise InvalidError("a descriptor is a path or a command")


def _info(descriptor: Any, command: GetCommand, parts: Parts) -> Any:
    endpoints = [wire.FlightEndpoint(ticket=wire.Ticket(ticket=part.ticket.encoded())) for part in parts.parts]
    exact = command.where is None and command.limit is None
    return wire.FlightInfo(
        schema=parts.schema.serialize().to_pybytes(),
        flight_descriptor=descriptor,
        endpoint=endpoints,
        total_records=parts.rows - parts.deleted if exact else -1,
        total_bytes=parts.nbytes,
        ordered=True,
        app_metadata=json.dumps({"uuid": parts.uuid.hex, "version": parts.version}).encode(),
    )


def _password(message: bytes | None) -> tuple[str, str]:
    if message is not None:
        payload = _parsed(wire.HandshakeRequest, message).payload
        basic = _parsed(wire.BasicAuth, payload)
        if basic.username:
            return basic.username, basic.password
    raise StatusError(grpc.StatusCode.UNAUTHENTICATED, "a handshake brings a user and a password")


async def _not_served(request: Any, context: Context) -> None:
    raise StatusError(grpc.StatusCode.UNIMPLEMENTED, "this call is not served; see docs/guide/flight.md")


def _parsed(kind: Any, raw: bytes) -> Any:
    """Raises `InvalidError`."""
    try:
        return kind.FromString(raw)
    except Exception as error:
        raise InvalidError(f"a message is no {kind.DESCRIPTOR.name}") from error
