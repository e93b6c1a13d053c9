"""`WireProxy`: listens on loopback, forwards each request to the server once, and lets a chooser break it.

Invariants: a request is sent to the server at most once, whole unless the fault says otherwise; a response goes
to the client only as far as the fault says. Order in one connection: read the head, ask the chooser, answer
``Expect: 100-continue``, read the body, then forward. Requests of one client connection run one after another.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit

from tests.netproxy.faults import (
    Answer,
    Chooser,
    CutAfter,
    CutBefore,
    CutInRequest,
    CutInResponse,
    Delay,
    DeliverLate,
    Fault,
    Throttle,
    pass_all,
)
from tests.netproxy.http import (
    MAX_HEAD_BYTES,
    Body,
    Framing,
    Head,
    ProtocolError,
    Request,
    pieces,
    read_head,
    request_body,
    response_body,
    status_of,
)

MAX_SEEN = 1_000_000
MAX_BODY_BYTES = 256 * 1024 * 1024
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Seen:
    """One request and what happened to it."""

    request: Request
    fault: Fault


@dataclass(frozen=True, slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def cut(self, *, reset: bool) -> None:
        """End at once: by a reset, or as if the peer had vanished."""
        if reset:
            sock = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self.writer.transport.abort()


class WireProxy:
    """An HTTP proxy for one server, to be used as ``async with`` in the loop that shall run it.

    ``choose`` may be replaced at any time. ``seen`` holds every request in order of arrival; `count` counts
    them. Leaving the context cuts what is still under way, `DeliverLate` requests included.
    """

    def __init__(self, upstream: str, choose: Chooser = pass_all) -> None:
        parts = urlsplit(upstream)
        if parts.scheme != "http" or parts.hostname is None or parts.port is None:
            raise ValueError(f"the server's URL must read http://host:port, not {upstream!r}")
        self._upstream = (parts.hostname, parts.port)
        self._path = parts.path
        self._server: asyncio.Server | None = None
        self._port = 0
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.choose = choose
        self.seen: deque[Seen] = deque(maxlen=MAX_SEEN)
        self.failures: list[BaseException] = []

    @property
    def url(self) -> str:
        """Where clients connect; carries the path of the server's URL, if it has one."""
        return f"http://127.0.0.1:{self._port}{self._path}"

    def count(
        self,
        method: str | None = None,
        path: str | None = None,
        *,
        conditional: bool | None = None,
        operation: str | None = None,
    ) -> int:
        """How many requests arrived with that method, that decoded path, with a condition or without, and for
        that operation of DynamoDB's."""
        return sum(
            method in (None, seen.request.method)
            and path in (None, seen.request.path)
            and conditional in (None, seen.request.conditional)
            and operation in (None, seen.request.operation)
            for seen in list(self.seen)
        )

    async def __aenter__(self) -> WireProxy:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=MAX_HEAD_BYTES, backlog=1024)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports that were cut close in the loop's next turn
        if error is None and self.failures:
            raise ExceptionGroup("the proxy failed", [f for f in self.failures if isinstance(f, Exception)])

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._spawn(_Connection(reader, writer))

    def _spawn(self, client: _Connection) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(client), name="netproxy connection")
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)

    async def _serve(self, client: _Connection) -> None:
        """All requests of one client connection."""
        try:
            while await self._one(client):
                pass
        except (ConnectionError, ProtocolError):
            pass  # either side went away: the other one is cut, which is all there is to tell it
        finally:
            client.cut(reset=False)

    async def _one(self, client: _Connection) -> bool:
        """One request; whether the connection may carry another."""
        head = await read_head(client.reader)
        if head is None:
            return False
        request = Request.of(head, len(self.seen))
        fault = self.choose(request)
        self.seen.append(Seen(request, fault))
        if isinstance(fault, CutBefore):
            client.cut(reset=fault.reset)
            return False
        body = await self._read_body(client, head)
        head = head.without("expect")
        match fault:
            case Answer():
                return await _answer(client, request, fault)
            case CutInRequest():
                await self._send_part(head, body, fault)
                client.cut(reset=fault.reset)
                return False
            case DeliverLate():
                client.cut(reset=fault.reset)
                await asyncio.sleep(fault.seconds)
                await self._drop_response(head, request, body)
                return False
            case CutAfter():
                await self._drop_response(head, request, body)
                client.cut(reset=fault.reset)
                return False
            case _:
                return await self._forward(client, head, request, body, fault)

    async def _read_body(self, client: _Connection, head: Head) -> bytes:
        if head.get("expect").lower() == "100-continue":
            client.writer.write(CONTINUE)
        parts, size = [], 0
        async for piece in pieces(client.reader, request_body(head)):
            parts.append(piece)
            size += len(piece)
            if size > MAX_BODY_BYTES:
                raise ProtocolError(f"a body is larger than {MAX_BODY_BYTES} bytes")
        return b"".join(parts)

    async def _open(self) -> _Connection:
        return _Connection(*await asyncio.open_connection(*self._upstream, limit=MAX_HEAD_BYTES))

    async def _send_part(self, head: Head, body: bytes, fault: CutInRequest) -> None:
        server = await self._open()
        try:
            server.writer.write(head.encode() + body[: int(len(body) * fault.fraction)])
            await server.writer.drain()
            server.writer.write_eof()
            await server.reader.read()
        finally:
            server.cut(reset=False)

    async def _exchange(self, server: _Connection, head: Head, method: str, body: bytes) -> tuple[Head, Body]:
        """Send a request; the head of its final response and the body that follows."""
        server.writer.write(head.without("connection").plus("Connection", "close").encode() + body)
        await server.writer.drain()
        while True:
            answer = await read_head(server.reader)
            if answer is None:
                raise ProtocolError("the server ended before it answered")
            if status_of(answer) >= 200:
                return answer, response_body(answer, method)

    async def _drop_response(self, head: Head, request: Request, body: bytes) -> None:
        server = await self._open()
        try:
            _, rest = await self._exchange(server, head, request.method, body)
            async for _ in pieces(server.reader, rest):
                pass
        finally:
            server.cut(reset=False)

    async def _forward(self, client: _Connection, head: Head, request: Request, body: bytes, fault: Fault) -> bool:
        if isinstance(fault, Delay):
            await asyncio.sleep(fault.before)
        server = await self._open()
        try:
            answer, rest = await self._exchange(server, head, request.method, body)
            if isinstance(fault, Delay):
                await asyncio.sleep(fault.after)
            keep = rest.framing is not Framing.UNTIL_CLOSE
            answer = answer.without("connection", "keep-alive")
            client.writer.write((answer if keep else answer.plus("Connection", "close")).encode())
            if isinstance(fault, CutInResponse):
                await self._send_some(client, server, rest, fault)
                return False
            async for piece in pieces(server.reader, rest):
                if isinstance(fault, Throttle):
                    await asyncio.sleep(len(piece) / fault.bytes_per_second)
                client.writer.write(piece)
                await client.writer.drain()
            await client.writer.drain()
            if not keep:
                client.writer.close()
                await client.writer.wait_closed()
            return keep
        finally:
            server.cut(reset=False)

    async def _send_some(self, client: _Connection, server: _Connection, rest: Body, fault: CutInResponse) -> None:
        """Send the first bytes of a body, all the way out, then end the connection."""
        data = b"".join([piece async for piece in pieces(server.reader, rest)])
        client.writer.write(data[: fault.body_bytes])
        await client.writer.drain()
        if fault.reset:
            client.cut(reset=True)
        else:
            client.writer.close()
            await client.writer.wait_closed()


async def _answer(client: _Connection, request: Request, answer: Answer) -> bool:
    fields = (
        ("Content-Type", answer.content_type),
        ("Content-Length", str(len(answer.body))),
        *answer.headers,
    )
    head = Head(f"HTTP/1.1 {answer.status} {answer.reason}", fields)
    client.writer.write(head.encode() + (b"" if request.method == "HEAD" else answer.body))
    await client.writer.drain()
    return True


class ThreadedProxy:
    """A `WireProxy` on a thread and event loop of its own, for clients that block or run in other processes."""

    def __init__(self, upstream: str, choose: Chooser = pass_all) -> None:
        self._proxy = WireProxy(upstream, choose)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="netproxy", daemon=True)

    def __enter__(self) -> WireProxy:
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error
        return self._proxy

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except (OSError, ExceptionGroup) as error:  # handed to the thread that uses the proxy
            self._error = error
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self._proxy:
            self._started.set()
            await self._stop.wait()
