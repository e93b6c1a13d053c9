"""Other databases' folders, reached as one's own is."""

from __future__ import annotations

import pytest

from slate_async.errors import InvalidError
from slate_async.objectstore.parents import ParentStores
from slate_async.objectstore.store_url import StoreURL, parse_url
from tests.engine import memory_store

OWN = "s3://bucket/a/db?endpoint_url=http://localhost:9&region=eu-1&client=aiobotocore"


def reached(own: str | None, path: str) -> tuple[str, list[StoreURL]]:
    """The name of the database at ``path``, and whose clients were asked for."""
    asked: list[StoreURL] = []

    def client(url: StoreURL) -> object:
        asked.append(url)
        return memory_store()

    parents = ParentStores(None if own is None else parse_url(own), {}, client)  # type: ignore[arg-type]
    parents.folder(path)
    assert parents.folder(path) is parents.folder(path)
    return parents.name_of(path), asked


@pytest.mark.parametrize(
    "path", ["s3://other/db", "s3://other/db/", "s3://other/db?region=eu-1", "s3://other/db?client=aiobotocore"]
)
def test_a_path_says_where_and_ones_own_url_how(path: str) -> None:
    name, [url] = reached(OWN, path)
    assert name == "s3://other/db"
    assert (url.bucket, url.prefix) == ("other", "db")
    assert (url.endpoint_url, url.region, url.client) == ("http://localhost:9", "eu-1", "aiobotocore")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("gs://other/db", "same kind of store"),
        ("/data/db", "same kind of store"),
        ("s3://other/db?region=us-1", "leave region out"),
        ("s3://other/db?endpoint_url=http://elsewhere", "leave endpoint_url out"),
    ],
)
def test_what_is_reached_otherwise_is_refused(path: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        reached(OWN, path)


def test_local_folders_are_folders() -> None:
    name, [url] = reached("/data/parent", "/data/child")
    assert (name, url.bucket, url.prefix) == ("file:///data/child", "/data/child", "")


def test_stores_given_as_objects_go_by_name() -> None:
    store = memory_store()
    parents = ParentStores(None, {"memory://mine": store}, lambda url: memory_store())
    assert parents.folder("memory://mine") is store
    assert parents.name_of("memory://mine") == "memory://mine"
    assert parents.folder("memory://other/db") is not store
