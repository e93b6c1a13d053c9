"""An endpoint that refuses connections is told with its cause, at once as seconds go."""

from __future__ import annotations

import asyncio
import socket

import pytest

import slate_async
from slate_async.cli import reach
from slate_async.cli.reach import check_reachable, endpoints_of


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {name for names in reach.VARIABLES.values() for name in names} | set(reach.PROXIES):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def unused_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def test_endpoints_are_those_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert endpoints_of("s3://b/db", "dynamodb://table") == []
    named = endpoints_of("s3://b/db?endpoint_url=http://a:1&region=x", "dynamodb://table?endpoint_url=http://b:2")
    assert named == ["http://a:1", "http://b:2"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://all:3")
    assert endpoints_of("s3://b/db", "dynamodb://table") == ["http://all:3", "http://all:3"]
    assert endpoints_of("/a/folder", None) == endpoints_of("nonsense://x", None) == []


async def test_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "REFUSED_S", 0.3)
    with pytest.raises(slate_async.UnavailableError, match=r"no answer from http://127.0.0.1:\d+: connection refused"):
        await check_reachable([f"http://127.0.0.1:{unused_port()}"])
    with pytest.raises(slate_async.UnavailableError, match=r"no answer from http://no-such-host\.invalid:1: "):
        await check_reachable(["http://no-such-host.invalid:1"])


async def test_one_that_listens_or_is_behind_a_proxy_is_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        await check_reachable([f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"])
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:8080")
    await check_reachable(["http://127.0.0.1:1"])
