"""DoGet: rows of a ticket, as fast as the client takes them.

A ticket is looked up and authorised anew. Batches are cut into messages and encoded in a worker thread, one ahead of
the one that is sent; the next is sent only once the last was taken, so a slow client holds a few of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import pyarrow as pa

from slate_async.errors import InvalidError
from slate_async.flight.auth import Caller
from slate_async.rpc.flight_messages import BatchEncoder, schema_message, sliced
from slate_async.rpc.server import RpcServer
from slate_async.rpc.wire import flight_pb2 as wire
from slate_async.runtime.concurrent import ahead
from slate_async.runtime.protocol import Runtime
from slate_async.tables.catalog import Catalog
from slate_async.tables.core.wire import Ticket
from slate_async.tables.parts import part_schema, read_part

ENCODED_AHEAD: Final = 2
"""Messages."""


def ticket_of(request: bytes) -> Ticket:
    """Raises `InvalidError`."""
    try:
        raw = wire.Ticket.FromString(request).ticket
    except Exception as error:
        raise InvalidError("DoGet takes a ticket, and this is none") from error
    return Ticket.decode(raw)


class GetStream:
    """One DoGet. ``rows`` and ``nbytes``: that were sent."""

    def __init__(
        self, catalog: Catalog, server: RpcServer, runtime: Runtime, context: Any, caller: Caller, batch_bytes: int
    ) -> None:
        self._catalog = catalog
        self._server = server
        self._runtime = runtime
        self._context = context
        self._caller = caller
        self._batch_bytes = batch_bytes
        self.rows = 0
        self.nbytes = 0

    async def run(self, request: bytes) -> None:
        """Send all. Raises errors of `slate_async.errors`."""
        ticket = ticket_of(request)
        self._caller.require("read", ticket.database)
        table = await self._catalog.table(ticket.database, ticket.table)
        head, plan = await part_schema(table, ticket)
        await self._server.write(self._context, schema_message(plan.given))
        encoder = BatchEncoder(plan.given)

        async def encoded(batch: pa.RecordBatch) -> list[bytes]:
            return await self._runtime.offload.run(lambda: encoder.messages(batch))

        async def cut() -> AsyncGenerator[tuple[pa.RecordBatch, int]]:
            async with aclosing(read_part(table, ticket, head, plan)) as batches:
                async for batch in batches:
                    for part in sliced(batch, self._batch_bytes):
                        self.rows += part.num_rows
                        yield part, part.nbytes

        budget = ENCODED_AHEAD * self._batch_bytes
        async with aclosing(ahead(encoded, cut(), limit=1, budget=budget)) as messages:
            async for made in messages:
                for message in made:
                    self.nbytes += len(message)
                    await self._server.write(self._context, message)
