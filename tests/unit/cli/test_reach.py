"""An endpoint that refuses connections is reported with its cause, within seconds."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

import slate_async
from slate_async.cli import reach
from slate_async.cli.reach import check_reachable, endpoints_of


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {name for names in reach.VARIABLES.values() for name in names} | set(reach.PROXIES):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """One that a server signed for itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store.test")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = tmp_path / "server.pem"
    path.write_bytes(private + made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    return path


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


async def test_a_refusal_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_server_of_plain_http_under_https_is_reported_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one, which answers a greeting of TLS as it answers any other bad request."""
    monkeypatch.setattr(reach, "REFUSED_S", 20.0)  # the answer tells, not the end of the wait
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    try:
        with pytest.raises(
            slate_async.UnavailableError, match=r"no answer from https://.*: it does not speak TLS; .*http://"
        ):
            await check_reachable([f"https://127.0.0.1:{server.server_port}"])
        await check_reachable([f"http://127.0.0.1:{server.server_port}"])
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


async def test_a_server_that_hangs_up_on_tls_is_reported_once_it_has_done_so_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reach, "REFUSED_S", 0.3)
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        with pytest.raises(slate_async.UnavailableError, match=r"no answer from https://127.0.0.1:\d+: .+"):
            await check_reachable([f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"])


async def test_a_silent_server_is_left_to_the_engine_and_so_is_one_that_speaks_tls(
    monkeypatch: pytest.MonkeyPatch, certificate: Path
) -> None:
    monkeypatch.setattr(reach, "REFUSED_S", 0.3)
    silent = socket.create_server(("127.0.0.1", 0))
    with silent:
        await check_reachable([f"https://127.0.0.1:{silent.getsockname()[1]}"])
    monkeypatch.setattr(reach, "REFUSED_S", 20.0)
    untrusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # no authority knows it, and it is not of this address
    untrusted.load_cert_chain(certificate)
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=untrusted)
    async with server:
        await check_reachable([f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"])
