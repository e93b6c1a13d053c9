"""Where S3 credentials, region and endpoint come from, seen from the server's side."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from botocore.exceptions import CredentialRetrievalError

from slate_async.errors import InvalidError, UnavailableError
from slate_async.objectstore.protocol import CREATE
from slate_async.objectstore.s3 import AiobotocoreS3Store
from slate_async.objectstore.url import open_store
from slate_async.runtime.system import system_runtime

CLIENTS = ["obstore", "aiobotocore"]
VARIABLES = """AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_PROFILE AWS_REGION AWS_DEFAULT_REGION
AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES.split():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
async def signed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[str]]:
    """``key id/region`` of every request a server gets; its address is in ``AWS_ENDPOINT_URL``."""
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        found = re.search(r"Credential=([^/]+)/\d+/([^/]+)/", head)
        seen.append(f"{found[1]}/{found[2]}" if found else "unsigned")
        writer.write(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    yield seen
    server.close()


async def _put(url: str) -> None:
    store, _ = open_store(url, system_runtime())
    await store.put("key", b"")
    await store.close()


@pytest.mark.parametrize("client", CLIENTS)
async def test_environment(client: str, signed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "FROMENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    await _put(f"s3://bucket?client={client}")
    await _put(f"s3://bucket?client={client}&region=eu-north-1")
    assert signed == ["FROMENV/eu-west-3", "FROMENV/eu-north-1"]


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_region_of_aws_region_wins(client: str, signed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "FROMENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    await _put(f"s3://bucket?client={client}")
    assert signed == ["FROMENV/eu-west-2"]


@pytest.mark.parametrize("client", CLIENTS)
async def test_profile(client: str, signed: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = DEFAULT\naws_secret_access_key = x\n"
        "[work]\naws_access_key_id = FROMPROFILE\naws_secret_access_key = y\n"
    )
    (tmp_path / ".aws" / "config").write_text("[default]\nregion = eu-south-1\n[profile work]\nregion = ca-west-1\n")
    await _put(f"s3://bucket?client={client}")
    monkeypatch.setenv("AWS_PROFILE", "work")
    await _put(f"s3://bucket?client={client}")
    assert signed == ["DEFAULT/eu-south-1", "FROMPROFILE/ca-west-1"]


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_endpoint_in_the_url_wins(client: str, signed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "FROMENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    await _put(f"s3://bucket?client={client}&region=us-east-1&endpoint_url={endpoint}")
    assert signed == ["FROMENV/us-east-1"]


async def test_an_unknown_profile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    for client in CLIENTS:
        with pytest.raises(InvalidError, match="nobody"):
            await _put(f"s3://bucket?client={client}&region=us-east-1")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."),
        CredentialRetrievalError(provider="process", error_msg="the helper failed"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_credentials_that_could_not_be_renewed_are_waited_for(error: Exception) -> None:
    async def signing(client: object) -> None:
        raise error

    store = AiobotocoreS3Store("bucket", system_runtime(), region="eu-west-1")
    with pytest.raises(UnavailableError) as raised:
        await store._send("key", CREATE, signing)
    assert raised.value.outcome == "not_applied"
    await store.close()


async def test_another_runtime_error_is_a_bug() -> None:
    async def broken(client: object) -> None:
        raise RuntimeError("the event loop is closed")

    store = AiobotocoreS3Store("bucket", system_runtime(), region="eu-west-1")
    with pytest.raises(RuntimeError, match="event loop"):
        await store._send("key", CREATE, broken)
    await store.close()
