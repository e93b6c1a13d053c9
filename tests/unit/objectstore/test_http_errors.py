"""What a store that cannot be reached is said to have: the place, the cause in words, and what to set."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from slate_async.errors import ClosedError, InvalidError, UnavailableError
from slate_async.objectstore.http_errors import plain, reason, refused
from slate_async.objectstore.obstore_store import S3, ObstoreStore
from slate_async.objectstore.protocol import CREATE
from slate_async.objectstore.retry import RetryingStore, RetryPolicy
from slate_async.objectstore.url import open_store
from slate_async.runtime.system import system_runtime

CLIENTS = ["obstore", "aiobotocore"]
SDK_WORDS = ("Generic", "HTTP error", "EndpointConnectionError", "reqwest", "Client")


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("host", "says"),
    [("127.0.0.1:9", "connection refused"), ("nowhere.invalid", "unknown host|name could not be looked up")],
)
async def test_the_place_and_the_last_cause_are_named(client: str, host: str, says: str) -> None:
    policy = RetryPolicy(attempts=2, first_pause=0.001)
    store, _ = open_store(f"s3://bucket?endpoint_url=http://{host}&client={client}", system_runtime(), retry=policy)
    with pytest.raises(
        UnavailableError, match=rf"no answer from s3://bucket at http://{host} for 'a/b': ({says})"
    ) as e:
        await store.put("a/b", b"")
    assert "(tried 2 times)" in str(e.value)
    assert not any(word in str(e.value) for word in SDK_WORDS)
    assert e.value.outcome == "not_applied"
    await store.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('Connect, ConnectError("tcp connect error", Os { kind: ConnectionRefused', "connection refused"),
        ('ConnectError("dns error", Custom { error: "failed to lookup address information: No', "unknown host"),
        ('error: "invalid peer certificate: UnknownIssuer"', "its TLS certificate was not accepted"),
        ("source: hyper::Error(IncompleteMessage)", "the connection broke"),
        ("ServerDisconnectedError before an answer", "the connection broke"),
        ("source: TimedOut, retry_timeout: 180s", "timed out"),
        ("Generic S3 error: odd\n\nretry_timeout: 180s, message: \"a new thing\"", "a new thing"),
        ("Generic S3 error: Error performing PUT http://timeout/b in 3ms - HTTP error: odd", "odd"),
        ("Generic GCS error: token=hunter2 was wrong", "token=*** was wrong"),
    ],
)  # fmt: skip
def test_words_for_what_sdks_say(text: str, words: str) -> None:
    assert reason(text) == words


def test_refusals_name_the_place_and_leave_the_sdk_out() -> None:
    said = plain("Generic S3 error: Error performing PUT http://h/b in 3.1ms - Server returned 403 Forbidden: no\nmore")
    error = refused(403, "AccessDenied", said, key="k", mode=CREATE, place="s3://b at http://h")
    assert str(error).startswith(
        "s3://b at http://h answered 403 AccessDenied for 'k': Server returned 403 Forbidden: no;"
    )


METADATA = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1ms - "
REFUSED = METADATA + "Server returned non-2xx status code: 403 Forbidden: denied"
UNREACHABLE = (
    METADATA + 'HTTP error: error sending request\n\nDebug source:\nkind: Connect, message: "No route to host"'
)


async def _no_client() -> Any:
    raise AssertionError("not to be called")


@pytest.mark.parametrize("text", [REFUSED, UNREACHABLE])
def test_without_credentials_the_error_names_what_to_set(text: str) -> None:
    store = ObstoreStore(_no_client, S3, "s3://bucket")
    error = store._failure(Exception(text), "key", CREATE)
    assert isinstance(error, InvalidError)
    assert str(error) == (
        "no credentials found for s3://bucket; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    )


def test_a_metadata_service_out_of_order_is_waited_for() -> None:
    store = ObstoreStore(_no_client, S3, "s3://bucket")
    busy = METADATA + "Server returned non-2xx status code: 503 Service Unavailable: "
    assert isinstance(store._failure(Exception(busy), "key", None), UnavailableError)
    store._failure(Exception("Error performing PUT http://h/b in 1ms - status code: 404 Not Found"), "key", None)
    for text in (REFUSED, UNREACHABLE):  # credentials were there before
        error = store._failure(Exception(text), "key", CREATE)
        assert isinstance(error, UnavailableError)
        assert "metadata service" in str(error)
        assert error.outcome == "not_applied"


async def test_aiobotocore_without_credentials_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    store, _ = open_store("s3://bucket?client=aiobotocore&endpoint_url=http://127.0.0.1:9", system_runtime())
    with pytest.raises(InvalidError, match=r"no credentials found for s3://bucket at .*; set AWS_ACCESS_KEY_ID and"):
        await store.get("key")
    await store.close()


@pytest.mark.parametrize("attempts", [3, 6])
async def test_an_operation_that_keeps_failing_is_logged_once(attempts: int, caplog: pytest.LogCaptureFixture) -> None:
    policy = RetryPolicy(attempts=attempts, first_pause=0.0001)
    store, _ = open_store("s3://bucket?endpoint_url=http://127.0.0.1:9", system_runtime(), retry=policy)
    assert isinstance(store, RetryingStore)
    with caplog.at_level(logging.WARNING, "slate_async.objectstore"), pytest.raises(UnavailableError):
        await store.get("key")
    logged = [record.getMessage() for record in caplog.records if record.name == "slate_async.objectstore.retry"]
    assert len(logged) == (1 if attempts > 3 else 0)
    assert all("get of 'key' failed 3 times" in text and "connection refused" in text for text in logged)
    await store.close()


async def test_a_client_that_is_made_while_the_store_is_closed_is_not_kept() -> None:
    made = asyncio.Event()

    async def slowly() -> object:
        await made.wait()
        return object()

    store = ObstoreStore(slowly, S3, "s3://bucket")
    reading = asyncio.ensure_future(store.get("a"))
    await asyncio.sleep(0)
    await store.close()
    made.set()
    with pytest.raises(ClosedError):
        await reading
    assert store._client is None
