"""What URLs mean, what is refused, and that no secret is ever repeated."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from slate_async.errors import ConfigError, InvalidError
from slate_async.objectstore.local import LocalStore
from slate_async.objectstore.retry import RetryingStore
from slate_async.objectstore.url import StoreURL, open_store, parse_url
from slate_async.runtime.system import system_runtime

SECRET = "hunter2SECRETvalue"


@pytest.mark.parametrize(
    ("url", "parsed", "display"),
    [
        ("memory://name", StoreURL("memory", "name"), "memory://name"),
        ("memory://name/a/b", StoreURL("memory", "name", "a/b"), "memory://name/a/b"),
        ("file:///data/db", StoreURL("file", "/data/db"), "file:///data/db"),
        ("file:/data/my%20db", StoreURL("file", "/data/my db"), "file:///data/my%20db"),
        ("file://localhost/data/my%20db/", StoreURL("file", "/data/my db"), "file:///data/my%20db"),
        ("/data/../srv/db", StoreURL("file", "/srv/db"), "file:///srv/db"),
        ("/odd?name#1", StoreURL("file", "/odd?name#1"), "file:///odd%3Fname%231"),
        ("s3://bucket", StoreURL("s3", "bucket"), "s3://bucket"),
        ("s3://bucket/a/b/", StoreURL("s3", "bucket", "a/b"), "s3://bucket/a/b"),
        ("az://container/x", StoreURL("az", "container", "x"), "az://container/x"),
        ("gs://bucket/x", StoreURL("gs", "bucket", "x"), "gs://bucket/x"),
        (
            "s3://b/p?endpoint_url=http://127.0.0.1:9000&region=eu-central-1&client=aiobotocore",
            StoreURL("s3", "b", "p", "http://127.0.0.1:9000", "eu-central-1", "aiobotocore"),
            "s3://b/p",
        ),
    ],
)
def test_urls(url: str, parsed: StoreURL, display: str) -> None:
    assert parse_url(url) == parsed
    assert parsed.display == str(parsed) == display
    assert "endpoint" not in display


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_url(Path("db")) == parse_url("db") == parse_url("./db") == StoreURL("file", str(tmp_path / "db"))
    assert parse_url(os.fspath(tmp_path)) == StoreURL("file", str(tmp_path))


@pytest.mark.parametrize(
    "url",
    [
        f"s3://AKIAIOSFODNN7EXAMPLE:{SECRET}@bucket/db",
        f"s3://{SECRET}@bucket",
        f"s3://bucket?aws_secret_access_key={SECRET}",
        f"s3://bucket?AWS-Secret-Access-Key={SECRET}",
        f"s3://bucket?access_key={SECRET}",
        f"s3://bucket?Session_Token={SECRET}",
        f"s3://bucket?region=us-east-1&PASSWORD={SECRET}",
        f"az://container?sas={SECRET}",
        f"az://container?sv=2020&sig={SECRET}",
        f"az://container?account_key={SECRET}",
        f"gs://bucket?credentials={SECRET}",
        f"s3://bucket?endpoint_url=http://user:{SECRET}@host",
        f"s3://bucket?endpoint_url=http://host?x={SECRET}",
        f"s3://bucket?endpoint_url={SECRET}",
        f"s3://bucket?region={SECRET}!",
        f"s3://bucket?client={SECRET}",
        f"s3://bucket?{SECRET}{SECRET}=1",
        f"s3://bucket#{SECRET}",
        f"{SECRET}0://bucket",
        f"file://{SECRET}/path",
        f"s3://[{SECRET}/path",
    ],
)
def test_secrets_are_refused_and_never_repeated(url: str) -> None:
    with pytest.raises(InvalidError) as failure:
        parse_url(url)
    assert SECRET not in "".join(traceback.format_exception(failure.value))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://host/x", "not with 'ftp'"),
        ("s3:/bucket", "begins with s3://"),
        ("s3://", "must be followed by a name"),
        ("s3:///key", "must be followed by a name"),
        ("s3://bucket/a//b", "empty"),
        ("s3://bucket?colour=red", "unknown parameter colour"),
        ("gs://bucket?region=eu", "unknown parameter region"),
        ("file:///x?region=eu", "unknown parameter region"),
        ("s3://bucket?region=a&region=b", "region must be given once"),
        ("s3://bucket?region=", "region must be given once"),
        ("s3://bucket?client=boto", "obstore, aiobotocore"),
        ("", "must not be empty"),
        ("a\0b", "must not hold a NUL"),
        ("file:///a%00b", "must not hold a NUL"),
        ("memory://", "as in memory://scratch"),
        ("gcs://bucket", "not with 'gcs'; gs:// is what you want"),
        ("azure://container", "not with 'azure'; az:// is what you want"),
        ("s3a://bucket", "not with 's3a'; s3:// is what you want"),
        ("s3n://bucket", "not with 's3n'; s3:// is what you want"),
        ("S3://bucket", "not with 'S3'; s3:// is what you want"),
        ("hdfs2://host", "not with 'hdfs2'$"),
        ("file://~/x", "know no '~'"),
        ("file://data/db", "three slashes"),
    ],
)
def test_wrong_urls(url: str, says: str) -> None:
    with pytest.raises(InvalidError, match=says):
        parse_url(url)


async def test_memory_stores_of_one_name_are_one() -> None:
    runtime = system_runtime()
    first, prefix = open_store("memory://shared-by-name/folder", runtime)
    second, _ = open_store("memory://shared-by-name", runtime)
    other, _ = open_store("memory://another-name", runtime)
    assert prefix == "folder"
    await first.put("key", b"1")
    await first.close()
    assert (await second.get("key")).data == b"1"
    assert [info async for info in other.list()] == []


async def test_nothing_shows_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a repr nor the error of a request that cannot succeed, whichever SDK makes it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SECRET)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", f"{SECRET}!not base64")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", f'{{"private_key": "{SECRET}"}}')
    runtime = system_runtime()
    nowhere = "endpoint_url=http://127.0.0.1:9"
    for url in (
        f"s3://b?{nowhere}&client=obstore",
        f"s3://b?{nowhere}&client=aiobotocore",
        f"az://b?{nowhere}",
        "gs://b",
    ):
        store, _ = open_store(f"{url}", runtime)
        assert isinstance(store, RetryingStore)
        with pytest.raises(Exception) as failure:  # noqa: PT011
            await store._store.put("key", b"")
        shown = "".join(traceback.format_exception(failure.value)) + repr(store) + repr(failure.value.__context__)
        assert SECRET not in shown, url
        assert "AKIAIOSFODNN7EXAMPLE" not in shown, url
        await store.close()
    assert repr(LocalStore(tmp_path, runtime)) == f"LocalStore({str(tmp_path)!r})"


@pytest.mark.parametrize("endpoint", ["127.0.0.1:5101", "http://127.0.0.1:xx", "http://", "http://user:word@host"])
@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("s3://b/p", "AWS_ENDPOINT_URL"),
        ("s3://b/p", "AWS_ENDPOINT_URL_S3"),
        ("s3://b/p?client=aiobotocore", "AWS_ENDPOINT_URL"),
        ("az://b/p", "AZURE_STORAGE_ENDPOINT"),
    ],
)
async def test_endpoints_in_the_environment_are_checked(
    url: str, variable: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clients themselves would panic, or try on for as long as a request may take."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv(variable, endpoint)

    async def use() -> None:
        store, _ = open_store(url, system_runtime())
        await store.head("any")

    with pytest.raises(ConfigError, match=f"environment variable {variable} must"):
        await use()
