"""`connect`: a catalog that a server serves over Arrow Flight, with the verbs of a local one and the same errors.

Rows are read from all endpoints side by side. What is written travels as one stream, which the server commits when it
ends; a stream that breaks before its end was not applied.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa

from slate_async.errors import ConfigError, InternalError, InvalidError, Outcome
from slate_async.rpc.channel import RpcChannel
from slate_async.rpc.flight_data import decode_data
from slate_async.rpc.flight_messages import BatchDecoder, BatchEncoder, schema_message, sliced
from slate_async.rpc.tls import ClientTls, is_loopback
from slate_async.rpc.wire import flight_pb2 as wire
from slate_async.runtime.loop_handle import LoopHandle
from slate_async.runtime.opening import Opening, require_loop
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.system import end_threads, system_runtime
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.predicate import PredicateLike, predicate_of, to_json
from slate_async.tables.core.schema import TableSchema
from slate_async.tables.core.wire import GetCommand, PutCommand, schema_of, schema_text
from slate_async.tables.incoming import ArrowData, conformed, tables_of
from slate_async.tables.results import AppendResult, DeleteResult, UpsertResult
from slate_async.tables.scan_plan import Wanted

SERVICE: Final = "/arrow.flight.protocol.FlightService/"
SENT_BYTES: Final = 4 << 20
"""Of a batch that is sent, about."""
MAX_BATCH: Final = 1 << 30
"""Of one that comes, in memory."""
ENDPOINTS: Final = 4
"""Read at once."""
WAITING: Final = 8
"""Batches that are read before they are asked for."""


def connect(
    url: str,
    *,
    token: str | None = None,
    user: str | None = None,
    password: str | None = None,
    tls_ca: Path | str | None = None,
    tls_cert: Path | str | None = None,
    tls_key: Path | str | None = None,
    timeout_ms: int = 60_000,
    insecure: bool = False,
) -> Opening[RemoteCatalog]:
    """Connect to a server of tables: await it, or enter it with ``async with``.

    url: ``grpc+tls://host:port``, or ``grpc://host:port`` without TLS
    token: that the server knows; or ``user`` and ``password``, for which it gives one
    tls_ca: authorities to trust instead of the machine's, in PEM; ``tls_cert`` and ``tls_key``: who the client is
    timeout_ms: for the answer to a call that is no stream
    insecure: allow a token or a password to travel without TLS, other than to this machine

    Raises `ConfigError`, `InvalidError`, `UnavailableError`."""
    target, secure = _target(url)
    if (user is None) != (password is None) or (user is not None and token is not None):
        raise InvalidError("give token=, or user= and password=")
    if not secure and not insecure and (token or user) and not is_loopback(target.rpartition(":")[0]):
        raise ConfigError(f"a token or password travels in the clear to {target}; use grpc+tls://, or insecure=True")
    paths = [None if path is None else Path(path) for path in (tls_ca, tls_cert, tls_key)]

    async def start() -> RemoteCatalog:
        require_loop()
        runtime = system_runtime()
        tls = ClientTls(*paths) if secure else None
        try:
            if user is not None and password is not None:
                first = _channel(target, tls, None, timeout_ms)
                try:
                    chosen: str | None = await _logged_in(first, user, password)
                finally:
                    await first.close()
            else:
                chosen = token
            return RemoteCatalog(url, _channel(target, tls, chosen, timeout_ms), runtime)
        except BaseException:
            end_threads(runtime)
            raise

    return Opening(start, "a connection", "connect(...)")


class RemoteCatalog(LoopHandle):
    """Made by `connect`. ``async with`` closes it. Its methods are those of `Catalog`."""

    def __init__(self, url: str, channel: RpcChannel, runtime: Runtime) -> None:
        super().__init__(f"the connection to {url}")
        self._url = url
        self._link = _Link(channel, runtime, lambda: self._guard.check("not_applied"))

    def __repr__(self) -> str:
        return f"<RemoteCatalog {self._url}, {'open' if self._guard.open else 'closed'}>"

    async def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """See `Catalog.create_database`."""
        await self._link.act("create-database", database=name, if_not_exists=if_not_exists)

    async def drop_database(self, name: str) -> None:
        """See `Catalog.drop_database`."""
        await self._link.act("drop-database", database=name)

    async def list_databases(self) -> list[str]:
        """Those that the caller may read, sorted."""
        return [found["database"] for found in await self._link.act("list-databases", None)]

    async def create_table(
        self,
        database: str,
        name: str,
        schema: pa.Schema,
        *,
        key: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> RemoteTable:
        """See `Catalog.create_table`."""
        if not isinstance(schema, pa.Schema):
            raise InvalidError(f"a table's schema is a pyarrow.Schema, not {schema!r}")
        await self._link.act(
            "create-table",
            database=database,
            table=name,
            arrow_schema=schema_text(schema),
            key=list(key),
            sort_by=list(sort_by),
            properties=dict(properties or {}),
            if_not_exists=if_not_exists,
        )
        return RemoteTable(self._link, database, name)

    async def table(self, database: str, name: str) -> RemoteTable:
        """See `Catalog.table`."""
        found = RemoteTable(self._link, database, name)
        await found.version()
        return found

    async def list_tables(self, database: str) -> list[str]:
        """See `Catalog.list_tables`."""
        return [found["table"] for found in await self._link.act("list-tables", None, database=database)]

    async def list_dropped(self, database: str) -> list[str]:
        """See `Catalog.list_dropped`."""
        return [found["table"] for found in await self._link.act("list-dropped", None, database=database)]

    async def drop_table(self, database: str, name: str) -> None:
        """See `Catalog.drop_table`."""
        await self._link.act("drop-table", database=database, table=name)

    async def undrop_table(self, database: str, name: str, *, new_name: str | None = None) -> RemoteTable:
        """See `Catalog.undrop_table`."""
        await self._link.act("undrop-table", database=database, table=name, new_name=new_name)
        return RemoteTable(self._link, database, new_name or name)

    async def rename_table(self, database: str, name: str, new_name: str, *, new_database: str | None = None) -> None:
        """See `Catalog.rename_table`."""
        asked = {"database": database, "table": name, "new_name": new_name, "new_database": new_database}
        await self._link.act("rename-table", **asked)

    async def close(self) -> None:
        """End all calls. Idempotent."""
        await self._end()

    async def _finish(self) -> None:
        await self._link.channel.close()
        end_threads(self._link.runtime)


class RemoteTable:
    """Made by `RemoteCatalog`, in which it lives. Its methods are those of `Table`."""

    def __init__(self, link: _Link, database: str, name: str) -> None:
        self._link = link
        self._place = {"database": database, "table": name}

    def __repr__(self) -> str:
        return f"<RemoteTable {self.database}.{self.name}>"

    @property
    def database(self) -> str:
        """Its database, when it was opened."""
        return self._place["database"]

    @property
    def name(self) -> str:
        """Its name, when it was opened."""
        return self._place["table"]

    async def schema(self) -> pa.Schema:
        """See `Table.schema`."""
        return schema_of((await self._described())["arrow_schema"])

    async def version(self) -> int:
        """See `Table.version`."""
        return int((await self._described())["version"])

    async def append(self, data: ArrowData, *, append_id: str | tuple[str, int] | None = None) -> AppendResult:
        """See `Table.append`. What became of one without an answer, `outcome` says, if it has an ``append_id``."""
        return AppendResult(**await self._put(data, "append", append_id))

    async def overwrite(self, data: ArrowData, *, append_id: str | tuple[str, int] | None = None) -> AppendResult:
        """See `Table.overwrite`."""
        return AppendResult(**await self._put(data, "overwrite", append_id))

    async def upsert(self, data: ArrowData, *, append_id: str | tuple[str, int] | None = None) -> UpsertResult:
        """See `Table.upsert`."""
        return UpsertResult(**await self._put(data, "upsert", append_id))

    async def delete(
        self, where: PredicateLike, *, strict: bool = False, append_id: str | tuple[str, int] | None = None
    ) -> DeleteResult:
        """See `Table.delete`."""
        asked = {"where": to_json(predicate_of(where)), "strict": strict, "append_id": append_id}
        [found] = await self._link.act("delete", **self._place, **asked)
        return DeleteResult(**found)

    async def outcome(self, append_id: str | tuple[str, int]) -> Mapping[str, Any]:
        """What became of a write: ``applied``, and the ``version`` that it made, where that is known; ``passed``: a
        later one of the same application is in, and this one will not be any more."""
        [found] = await self._link.act("outcome", None, **self._place, append_id=append_id)
        return found

    def scan(
        self,
        where: PredicateLike | None = None,
        columns: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        version: int | None = None,
    ) -> RemoteScan:
        """See `Table.scan`. ``version``: another one than the newest. A large scan has several endpoints, and their
        batches come as they are read."""
        wanted = Wanted.of(where, columns, limit, row_ids=False)
        command = GetCommand(self.database, self.name, version, wanted.columns, wanted.where, limit)
        return RemoteScan(self._link, command)

    async def _described(self) -> Mapping[str, Any]:
        [found] = await self._link.act("describe-table", None, **self._place)
        return found

    async def _put(self, data: ArrowData, mode: str, append_id: str | tuple[str, int] | None) -> Mapping[str, Any]:
        command = PutCommand(self.database, self.name, mode, append_id).encoded()
        schema = await self.schema()
        async with aclosing(_uploaded(data, TableSchema.of(schema), command, self._link.runtime)) as messages:
            answers = await self._link.channel.upload(f"{SERVICE}DoPut", messages, accepted=True)
        if not answers:
            raise InternalError("the server has ended the stream without an answer", outcome="unknown")
        found: Mapping[str, Any] = json.loads(wire.PutResult.FromString(answers[-1]).app_metadata)
        return found


class RemoteScan:
    """Made by `RemoteTable.scan`. Iterate over it with ``async for``, as often as you like, or `read` all of it."""

    def __init__(self, link: _Link, command: GetCommand) -> None:
        self._link = link
        self._command = command

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        return self._batches(None)

    async def read(self) -> pa.Table:
        """All rows, in memory."""
        info = await self._info()
        async with aclosing(self._batches(info)) as found:
            batches = [batch async for batch in found]
        return pa.Table.from_batches(batches, schema=pa.ipc.read_schema(pa.py_buffer(info.schema)))

    async def _info(self) -> Any:
        descriptor = wire.FlightDescriptor(type=wire.FlightDescriptor.CMD, cmd=self._command.encoded())
        self._link.check()
        answer = await self._link.channel.unary(f"{SERVICE}GetFlightInfo", descriptor.SerializeToString())
        return wire.FlightInfo.FromString(answer)

    async def _batches(self, info: Any) -> AsyncGenerator[pa.RecordBatch]:
        if info is None:
            info = await self._info()
        left = self._command.limit
        async with aclosing(self._merged([endpoint.ticket.SerializeToString() for endpoint in info.endpoint])) as found:
            async for batch in found:
                if left is not None and left <= batch.num_rows:
                    if left:
                        yield batch.slice(0, left)
                    return
                left = None if left is None else left - batch.num_rows
                yield batch

    async def _merged(self, tickets: Iterable[bytes]) -> AsyncGenerator[pa.RecordBatch]:
        """Batches of all endpoints, as they come."""
        waiting: asyncio.Queue[pa.RecordBatch | BaseException | None] = asyncio.Queue(WAITING)
        listed = iter(list(tickets))

        async def work() -> None:
            try:
                for ticket in listed:
                    async with aclosing(self._endpoint(ticket)) as batches:
                        async for batch in batches:
                            await waiting.put(batch)
            except Exception as error:  # noqa: BLE001 - raised where the batches are taken
                await waiting.put(error)
            else:
                await waiting.put(None)

        tasks = [asyncio.create_task(work()) for _ in range(ENDPOINTS)]
        running = len(tasks)
        try:
            while running:
                found = await waiting.get()
                if found is None:
                    running -= 1
                elif isinstance(found, BaseException):
                    raise found
                else:
                    yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _endpoint(self, ticket: bytes) -> AsyncGenerator[pa.RecordBatch]:
        decoder, runtime = BatchDecoder(MAX_BATCH), self._link.runtime
        async with aclosing(self._link.channel.answers(f"{SERVICE}DoGet", ticket)) as messages:
            async for message in messages:
                self._link.check()
                batch = await runtime.offload.run(partial(_decoded, decoder, message))
                if batch is not None:
                    yield batch


class _Link:
    """What catalog and tables share. ``check``: raises `ClosedError` once the catalog is closed."""

    def __init__(self, channel: RpcChannel, runtime: Runtime, check: Any) -> None:
        self.channel = channel
        self.runtime = runtime
        self.check = check

    async def act(self, action: str, outcome: Outcome | None = "unknown", /, **body: Any) -> list[Mapping[str, Any]]:
        """All lines of the answer. Raises what the server says."""
        self.check()
        request = wire.Action(type=action, body=json.dumps(body).encode()).SerializeToString()
        async with aclosing(self.channel.answers(f"{SERVICE}DoAction", request, outcome=outcome)) as answers:
            return [json.loads(wire.Result.FromString(answer).body) async for answer in answers]


def _decoded(decoder: BatchDecoder, message: bytes) -> pa.RecordBatch | None:
    return decoder.decode(decode_data(message))


async def _uploaded(data: ArrowData, schema: TableSchema, command: bytes, runtime: Runtime) -> AsyncGenerator[bytes]:
    descriptor = wire.FlightDescriptor(type=wire.FlightDescriptor.CMD, cmd=command).SerializeToString()
    given = schema.arrow()
    yield schema_message(given, descriptor=descriptor)
    encoder = BatchEncoder(given)
    async with aclosing(tables_of(data, runtime)) as tables:
        async for table in tables:
            for batch in conformed(table, schema).to_batches():
                for part in sliced(batch, SENT_BYTES):
                    for message in await runtime.offload.run(partial(encoder.messages, part)):
                        yield message


def _target(url: str) -> tuple[str, bool]:
    """``host:port``, and whether it is by TLS. Raises `InvalidError`."""
    parts = urlsplit(url) if isinstance(url, str) else None
    try:
        good = parts is not None and parts.hostname and parts.port and parts.scheme in ("grpc", "grpc+tcp", "grpc+tls")
    except ValueError:
        good = False
    if not good or parts is None or parts.path.strip("/") or parts.query or parts.username:
        raise InvalidError(f"a server's URL is grpc+tls://host:port or grpc://host:port, not {url!r}")
    return parts.netloc, parts.scheme == "grpc+tls"


def _channel(target: str, tls: ClientTls | None, token: str | None, timeout_ms: int) -> RpcChannel:
    kinds = {"SnapshotExpiredError": SnapshotExpiredError}
    return RpcChannel(target, tls, token=token, timeout_ms=timeout_ms, kinds=kinds)


async def _logged_in(channel: RpcChannel, user: str, password: str) -> str:
    payload = wire.BasicAuth(username=user, password=password).SerializeToString()

    async def requests() -> AsyncGenerator[bytes]:
        yield wire.HandshakeRequest(payload=payload).SerializeToString()

    async with aclosing(requests()) as messages:
        answers = await channel.upload(f"{SERVICE}Handshake", messages, outcome=None)
    if not answers:
        raise InternalError("the server has ended the handshake without a token")
    return str(wire.HandshakeResponse.FromString(answers[-1]).payload.decode())
