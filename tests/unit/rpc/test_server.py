"""Servers and channels together, over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from slate_async.errors import ConfigError, InvalidError, NotFoundError, UnavailableError
from slate_async.rpc import health
from slate_async.rpc.channel import RpcChannel
from slate_async.rpc.server import Method, RpcLimits, RpcServer
from slate_async.rpc.tls import ClientTls, ServerTls
from tests.support.certificates import certificates

LIMITS = RpcLimits(message_bytes=100_000, streams=2, connection_streams=8, idle_ms=200)


@asynccontextmanager
async def pair(
    methods: Mapping[str, Method], tls: ServerTls | None = None, client: ClientTls | None = None
) -> AsyncIterator[Any]:
    server = RpcServer(LIMITS)
    server.add("test.Service", methods)
    server.add(health.SERVICE, health.health_methods(server))
    port = await server.start("127.0.0.1:0", tls)
    channel = RpcChannel(f"127.0.0.1:{port}", client, timeout_ms=10_000)
    try:
        yield server, channel
    finally:
        await channel.close()
        await server.stop(0)


async def echo(request: Any, context: Any) -> bytes:
    return bytes(request)


async def fail(request: bytes, context: Any) -> bytes:
    if request == b"bug":
        raise ZeroDivisionError("secret")
    raise NotFoundError(request.decode())


async def test_calls_are_answered_and_errors_come_as_they_are() -> None:
    async with pair({"Echo": Method(echo), "Fail": Method(fail)}) as (server, channel):
        assert await channel.unary("/test.Service/Echo", b"hello") == b"hello"
        with pytest.raises(NotFoundError, match=r"^no table$"):
            await channel.unary("/test.Service/Fail", b"no table")
        with pytest.raises(UnavailableError, match="its log says how") as failed:
            await channel.unary("/test.Service/Fail", b"bug", outcome="unknown")
        assert "secret" not in str(failed.value)
        with pytest.raises(InvalidError, match="larger than max"):
            await channel.unary("/test.Service/Echo", b"x" * 200_000)
        with pytest.raises(ConfigError, match="UNIMPLEMENTED"):
            await channel.unary("/test.Service/Other", b"")
        assert await channel.unary("/grpc.health.v1.Health/Check", b"") == health.SERVING
        assert server.stats.metrics()["rpc.status.not_found"] == 1


async def test_streams_are_limited_and_idle_ones_end() -> None:
    async def wait(request: Any, context: Any) -> None:
        while await server.read(context) is not None:
            pass

    async with pair({"Wait": Method(wait, requests=True, answers=True, long=True)}) as (server, channel):

        async def call() -> grpc.StatusCode:
            async with channel.both("/test.Service/Wait") as running:
                return await running.code()

        codes = await asyncio.gather(*(call() for _ in range(3)))
        assert sorted(code.name for code in codes) == ["DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"]
        assert (server.stats.refused, server.stats.idle, server.stats.streams) == (1, 2, 0)


async def test_a_stream_that_nobody_reads_ends() -> None:
    ended = asyncio.Event()

    async def pour(request: Any, context: Any) -> None:
        try:
            while True:
                await server.write(context, b"x" * 50_000)
        finally:
            ended.set()

    async with pair({"Pour": Method(pour, answers=True, long=True)}) as (server, channel):
        messages = channel.answers("/test.Service/Pour", b"")
        assert len(await anext(messages)) == 50_000
        async with asyncio.timeout(10):
            await ended.wait()
        await messages.aclose()
        assert server.stats.idle == 1


async def test_a_server_that_stops_lets_calls_end() -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def slow(request: Any, context: Any) -> bytes:
        begun.set()
        await end.wait()
        return b"done"

    async with pair({"Slow": Method(slow)}) as (server, channel):
        call = asyncio.create_task(channel.unary("/test.Service/Slow", b""))
        await begun.wait()
        stop = asyncio.create_task(server.stop(30))
        await asyncio.sleep(0.05)
        end.set()
        assert await call == b"done"
        await stop


async def test_tls_and_client_certificates(tmp_path: Path) -> None:
    folder = certificates(tmp_path)
    names: list[Any] = []

    async def who(request: Any, context: Any) -> bytes:
        names.append(context.auth_context().get("x509_common_name"))
        return b""

    tls = ServerTls(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    client = ClientTls(folder / "ca.pem", folder / "client.pem", folder / "client.key")
    async with pair({"Who": Method(who)}, tls, client) as (_, channel):
        await channel.unary("/test.Service/Who", b"")
        assert names == [[b"ann"]]


async def test_files_and_addresses_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        ServerTls(tmp_path / "none", tmp_path / "none").credentials()
    (tmp_path / "text").write_text("no PEM")
    with pytest.raises(ConfigError, match="not in PEM"):
        ClientTls(tmp_path / "text").credentials()
    with pytest.raises(ConfigError, match="together"):
        ClientTls(None, tmp_path / "text").credentials()
    async with pair({}):
        with pytest.raises(ConfigError, match="cannot listen"):
            await RpcServer(LIMITS).start("203.0.113.1:1", None)
