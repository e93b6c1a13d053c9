"""DoPut: a stream of batches becomes blocks as it comes, and one commit when the client ends its side.

The schema is compared with the table's before anything is stored. Batches are gathered into blocks; when rows of all
streams fill the memory they may take, what a stream has gathered becomes a block as it is, so each of them gets on.

Ordering rule: a commit follows an answer that the client's connection took after the end of its side. A connection that
broke ends the messages, too, and takes no answer: such a stream commits nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from slate_async.errors import InvalidError, UnavailableError
from slate_async.flight.auth import Caller
from slate_async.flight.put_memory import PutMemory
from slate_async.rpc.flight_data import FlightData, decode_data
from slate_async.rpc.flight_messages import BatchDecoder
from slate_async.rpc.server import RpcServer
from slate_async.rpc.wire import flight_pb2 as wire
from slate_async.runtime.protocol import Runtime
from slate_async.tables.catalog import Catalog
from slate_async.tables.core.wire import PutCommand
from slate_async.tables.incoming import BLOCK_BYTES, Cut, check_columns
from slate_async.tables.table import Table

DECOMPRESSED: Final = 4
"""A compressed batch may take so many times what a message may."""


def put_command(descriptor: memoryview | None) -> PutCommand:
    """What a stream is for. Raises `InvalidError`."""
    if descriptor is None:
        raise InvalidError("the first message of DoPut has a descriptor: the path of a table, or a command")
    try:
        found = wire.FlightDescriptor.FromString(bytes(descriptor))
    except Exception as error:
        raise InvalidError("the descriptor of DoPut is no FlightDescriptor") from error
    if found.type == wire.FlightDescriptor.PATH:
        if len(found.path) != 2:
            raise InvalidError(f"the path of a table is its database and its name, not {list(found.path)!r:.200}")
        return PutCommand(*found.path)
    if found.type == wire.FlightDescriptor.CMD:
        return PutCommand.decode(found.cmd)
    raise InvalidError("a descriptor is a path or a command")


class PutStream:
    """One DoPut, from its first message to its answer. ``caller``: asked for once the first message has come, because a
    call that ends sooner leaves clients without its status."""

    def __init__(
        self,
        catalog: Catalog,
        server: RpcServer,
        memory: PutMemory,
        runtime: Runtime,
        context: Any,
        caller: Callable[[], Caller],
    ) -> None:
        self._catalog = catalog
        self._server = server
        self._memory = memory
        self._runtime = runtime
        self._context = context
        self._caller = caller
        self._decoder = BatchDecoder(DECOMPRESSED * server.limits.message_bytes)
        self._ended = False
        self.rows = 0
        self.nbytes = 0

    async def run(self) -> None:
        """Take the stream in and commit it. Raises errors of `slate_async.errors`."""
        first = await self._next()
        if first is None:
            raise InvalidError("the stream ended before its first message")
        command = put_command(first.descriptor)
        if command.append_id is None:  # so that a client without an answer can ask for the outcome
            command = replace(command, append_id=f"put-{self._runtime.ids.token()}")
        self._caller().require("write", command.database)
        table = await self._catalog.table(command.database, command.table)
        await self._decode(first)
        while self._decoder.schema is None:
            message = await self._next()
            if message is None:
                raise InvalidError("the stream ended before its schema")
            await self._decode(message)
        check_columns(self._decoder.schema, await table.schema())
        await self._answer({"received_rows": 0})  # for which a client may wait before it sends rows
        await self._committed(table, command)

    async def _committed(self, table: Table, command: PutCommand) -> None:
        try:
            async with aclosing(self._pieces()) as pieces:
                result = await _PUTS[command.mode](table, Cut(pieces, lambda: self._ended), command)
        except UnavailableError as error:
            error.append_id = command.append_id  # type: ignore[attr-defined]  # see slate_async.rpc.statuses
            raise
        await self._answer(dataclasses.asdict(result))

    async def _pieces(self) -> AsyncGenerator[pa.Table]:
        """What becomes a block each."""
        gathered: list[pa.RecordBatch] = []
        size = 0
        while True:
            if gathered and (size >= BLOCK_BYTES or not self._memory.has_room):
                yield pa.Table.from_batches(gathered)
                gathered, size = [], 0
                await self._answer({"received_rows": self.rows})
            message = await self._next()
            if message is None:
                break
            batch = await self._decode(message)
            if batch is not None and batch.num_rows:
                gathered.append(batch)
                size += batch.nbytes
                self.rows += batch.num_rows
                self.nbytes += batch.nbytes
                del batch
        self._ended = True
        if gathered:
            yield pa.Table.from_batches(gathered)
        await self._answer({"received_rows": self.rows})  # see the ordering rule

    async def _next(self) -> FlightData | None:
        await self._memory.room()
        raw = await self._server.read(self._context)
        return None if raw is None else decode_data(raw)

    async def _decode(self, message: FlightData) -> pa.RecordBatch | None:
        charge = self._memory.charge(len(message.body))
        batch: pa.RecordBatch | None = await self._runtime.offload.run(lambda: self._decoder.decode(message, charge))
        if batch is not None and batch.nbytes > len(message.body):
            charge.grow(batch.nbytes - len(message.body))
        return batch

    async def _answer(self, said: dict[str, Any]) -> None:
        message = wire.PutResult(app_metadata=json.dumps(said).encode())
        await self._server.write(self._context, message.SerializeToString())


async def _append(table: Table, data: Cut, command: PutCommand) -> Any:
    return await table.append(data, append_id=command.append_id)


async def _overwrite(table: Table, data: Cut, command: PutCommand) -> Any:
    return await table.overwrite(data, append_id=command.append_id)


async def _upsert(table: Table, data: Cut, command: PutCommand) -> Any:
    return await table.upsert(data, append_id=command.append_id)


_PUTS: Final = {"append": _append, "overwrite": _overwrite, "upsert": _upsert}
