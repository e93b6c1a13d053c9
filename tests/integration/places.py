"""The places real-process tests run in: every store and metastore crossed with every kind of log."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import boto3

import slate_async as slate
try:
    from metastores.dynamodb import DynamoDBMetaStore
except ImportError: DynamoDBMetaStore=None

STORES = ("local", "s3", "s3+dynamodb")
LOGS = tuple(itertools.product(("contiguous", "epoch_prefixed"), (True, False)))
REGION = "us-east-1"


@dataclass(frozen=True)
class Place:
    """Arguments that open one database, here or in a child process."""

    path: str
    metastore: str | None
    settings: dict[str, object]

    def open(self, **more: object) -> object:
        settings = slate.Settings(**{**self.settings, **more})
        return slate.open(self.path, metastore=self.metastore, settings=settings)

    def arguments(self) -> list[str]:
        import json

        metastore = [] if self.metastore is None else ["--metastore", self.metastore]
        return [self.path, *metastore, "--settings", json.dumps(self.settings)]


def make_bucket(endpoint: str) -> str:
    """A fresh bucket on the S3 server at ``endpoint``."""
    bucket = f"b{uuid.uuid4().hex}"
    client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION)
    client.create_bucket(Bucket=bucket)
    client.close()
    return bucket


async def make_place(
    store: str, log: tuple[str, bool], folder: Path, endpoint: str | None, client: str = "obstore", **settings: object
) -> Place:
    """A fresh place. ``endpoint``: of the S3 and DynamoDB server, unused for the local store."""
    protocol, wal = log
    chosen = {"log_protocol": protocol, "wal_enabled": wal, "manifest_poll_interval_ms": 300, **settings}
    if store == "local":
        return Place(str(folder / "db"), None, chosen)
    assert endpoint is not None
    query = f"?endpoint_url={quote(endpoint, safe='')}&region={REGION}"
    path = f"s3://{make_bucket(endpoint)}/db{query}&client={client}"
    if store == "s3":
        return Place(path, None, chosen)
    table = f"t{uuid.uuid4().hex}"
    await DynamoDBMetaStore.create_table(table, region=REGION, endpoint_url=endpoint)
    return Place(path, f"dynamodb://{table}{query}", chosen)
