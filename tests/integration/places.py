"""The places real-process tests run in: every store and metastore crossed with every kind of log."""

from __future__ import annotations

import itertools
import json
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import boto3

import slate_async as slate
from metastores.dynamodb import DynamoDBMetaStore

STORES = ("local", "s3", "s3+dynamodb")
LOGS = tuple(itertools.product(("contiguous", "epoch_prefixed"), (True, False)))
REGION = "us-east-1"


@dataclass(frozen=True)
class Place:
    """Arguments that open one database, here or in a child process."""

    path: str
    metastore: str | None
    settings: dict[str, object]

    def open(self, environment: slate.Environment | None = None, **more: object) -> slate.Opening[slate.Db]:
        settings = slate.Settings(**{**self.settings, **more})
        begin = slate.open if environment is None else environment.open
        return begin(self.path, metastore=self.metastore, settings=settings)

    def through(self, endpoint: str, proxy: str) -> Place:
        """The same database, reached by way of ``proxy`` wherever this place names ``endpoint``."""

        def swap(url: str) -> str:
            return url.replace(quote(endpoint, safe=""), quote(proxy, safe=""))

        metastore = None if self.metastore is None else swap(self.metastore)
        return replace(self, path=swap(self.path), metastore=metastore)

    def arguments(self) -> list[str]:
        metastore = [] if self.metastore is None else ["--metastore", self.metastore]
        return [self.path, *metastore, "--settings", json.dumps(self.settings)]


def make_bucket(endpoint: str) -> str:
    """A fresh bucket on the S3 server at ``endpoint``."""
    bucket = f"b{uuid.uuid4().hex}"
    session = boto3.Session()  # of its own: the default one keeps the first credentials it met
    client = session.client("s3", endpoint_url=endpoint, region_name=REGION)
    client.create_bucket(Bucket=bucket)
    client.close()
    return bucket


def url_query(endpoint: str) -> str:
    """Parameters of store and metastore URLs for a server at ``endpoint``."""
    return f"?endpoint_url={quote(endpoint, safe='')}&region={REGION}"


async def make_table(endpoint: str) -> str:
    """The URL of a fresh metastore table on the DynamoDB server at ``endpoint``."""
    table = f"t{uuid.uuid4().hex}"
    await DynamoDBMetaStore.create_table(table, region=REGION, endpoint_url=endpoint)
    return f"dynamodb://{table}{url_query(endpoint)}"


async def make_place(
    store: str,
    log: tuple[str, bool],
    folder: Path | None,
    endpoint: str | None,
    client: str = "obstore",
    **settings: object,
) -> Place:
    """A fresh place. ``store``: "local", or "s3" with one of "", "+if-match", "+dynamodb" behind it.

    ``endpoint``: of the S3 and DynamoDB server, unused for the local store, as is ``folder`` for all others."""
    protocol, wal = log
    chosen = {"log_protocol": protocol, "wal_enabled": wal, "manifest_poll_interval_ms": 300, **settings}
    if store == "local":
        assert folder is not None
        return Place(str(folder / "db"), None, chosen)
    assert endpoint is not None
    path = f"s3://{make_bucket(endpoint)}/db{url_query(endpoint)}&client={client}"
    _, _, metadata = store.partition("+")
    if metadata == "dynamodb":
        return Place(path, await make_table(endpoint), chosen)
    return Place(path, metadata or None, chosen)
