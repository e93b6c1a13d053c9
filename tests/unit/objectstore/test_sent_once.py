"""Conditional puts on the wire: one request each, whatever happens to the connection; and what answers mean.

The server speaks raw HTTP over TCP, counts requests, and answers, drops or stays silent as the test says. The first
request of every test is answered, so the one that is dropped travels on a kept-alive connection: the case in which HTTP
clients resend.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from slate_async.errors import ConfigError, InvalidError, NotFoundError, SlateError, UnavailableError
from slate_async.objectstore.protocol import (
    CREATE,
    OVERWRITE,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStore,
    PutMode,
)
from slate_async.objectstore.url import open_store
from slate_async.runtime.system import system_runtime

CLIENTS = ("obstore", "aiobotocore")
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY0"


class WireServer:
    """Answers 200 until the test says otherwise. ``requests`` holds the request lines of bodies that arrived whole."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.headers: list[str] = []
        self.behaviour = "answer"
        self.answer = self.response(200, "", 'ETag: "abc"\r\n')
        self.connections = 0
        self.open: list[tuple[asyncio.Task[object] | None, asyncio.StreamWriter]] = []

    @staticmethod
    def response(status: int, code: str, headers: str = "") -> bytes:
        body = f"<Error><Code>{code}</Code><Message>said {SECRET}</Message></Error>" if code else ""
        return f"HTTP/1.1 {status} Status\r\n{headers}Content-Length: {len(body)}\r\n\r\n{body}".encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.append((asyncio.current_task(), writer))
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = head.lower().split("\r\n")
                size = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
                await reader.readexactly(size)
                self.requests.append(head.partition("\r\n")[0])
                self.headers.append(head.lower())
                if self.behaviour == "drop":
                    return
                if self.behaviour == "half an answer":
                    writer.write(self.answer[:20])
                    await writer.drain()
                    return
                writer.write(self.answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def _opened(client: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ObjectStore, WireServer]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    wire = WireServer()
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"s3://bucket?endpoint_url=http://127.0.0.1:{port}&region=us-east-1&client={client}"
    store, _ = open_store(url, system_runtime())
    try:
        yield store, wire
    finally:
        await store.close()
        server.close()
        for _, writer in wire.open:
            writer.close()
        await asyncio.gather(*(task for task, _ in wire.open if task is not None))


@pytest.mark.parametrize("mode", [CREATE, Match('"abc"')])
@pytest.mark.parametrize("behaviour", ["drop", "half an answer"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_dropped_connection_is_not_sent_again(
    client: str, behaviour: str, mode: PutMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _opened(client, monkeypatch) as (store, wire):
        assert await store.put("first", b"warm") == '"abc"'
        wire.behaviour = behaviour
        with pytest.raises(UnavailableError) as failure:
            await store.put("key", b"body", mode=mode)
        assert failure.value.outcome == "unknown"
        assert len(wire.requests) == 2
        condition = "if-none-match: *" if mode is CREATE else 'if-match: "abc"'
        assert condition in wire.headers[1]
        assert "expect:" not in wire.headers[1]
        assert wire.connections == 1


@pytest.mark.parametrize("client", CLIENTS)
async def test_server_errors_are_not_sent_again(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _opened(client, monkeypatch) as (store, wire):
        wire.answer = wire.response(503, "SlowDown")
        with pytest.raises(UnavailableError):
            await store.put("key", b"body", mode=CREATE)
        wire.answer = wire.response(500, "InternalError")
        with pytest.raises(UnavailableError) as failure:
            await store.put("key", b"body", mode=CREATE)
        assert failure.value.outcome == "unknown"
        assert len(wire.requests) == 2


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_connection_refused_was_not_applied(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    url = f"s3://bucket?endpoint_url=http://127.0.0.1:{port}&region=us-east-1&client={client}"
    store, _ = open_store(url, system_runtime())
    with pytest.raises(UnavailableError) as failure:
        await store.put("key", b"body", mode=CREATE)
    assert failure.value.outcome == "not_applied"
    await store.close()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("status", "code", "mode", "kind", "outcome"),
    [
        (412, "PreconditionFailed", CREATE, ObjectExistsError, "not_applied"),
        (412, "PreconditionFailed", Match('"e"'), ObjectChangedError, "not_applied"),
        (409, "ConditionalRequestConflict", CREATE, UnavailableError, "not_applied"),
        (409, "ConditionalRequestConflict", Match('"e"'), UnavailableError, "not_applied"),
        (404, "NoSuchKey", Match('"e"'), ObjectChangedError, "not_applied"),
        (404, "NoSuchBucket", Match('"e"'), NotFoundError, "not_applied"),
        (404, "NoSuchBucket", CREATE, NotFoundError, "not_applied"),
        (403, "AccessDenied", CREATE, ConfigError, "not_applied"),
        (403, "SignatureDoesNotMatch", OVERWRITE, ConfigError, "not_applied"),
        (501, "NotImplemented", CREATE, ConfigError, "not_applied"),
        (503, "SlowDown", CREATE, UnavailableError, "not_applied"),
    ],
)
async def test_answers_to_puts(
    client: str,
    status: int,
    code: str,
    mode: PutMode,
    kind: type[SlateError],
    outcome: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with _opened(client, monkeypatch) as (store, wire):
        wire.answer = wire.response(status, code)
        with pytest.raises(kind) as failure:
            await store.put("key", b"body", mode=mode)
        assert type(failure.value) is kind
        assert failure.value.outcome == outcome
        assert len(wire.requests) == 1
        assert SECRET not in str(failure.value) + repr(failure.value.__cause__) + repr(failure.value.__context__)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "NoSuchKey", ObjectNotFoundError),
        (404, "NoSuchBucket", NotFoundError),
        (403, "AccessDenied", ConfigError),
        (416, "InvalidRange", InvalidError),
    ],
)
async def test_answers_to_reads(
    client: str, status: int, code: str, kind: type[SlateError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _opened(client, monkeypatch) as (store, wire):
        wire.answer = wire.response(status, code)
        with pytest.raises(kind) as failure:
            await store.get("key")
        assert type(failure.value) is kind
        assert failure.value.outcome is None
