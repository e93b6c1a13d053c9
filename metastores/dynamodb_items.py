"""Deleting items of a DynamoDB table: some, or all of a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metastores.dynamodb_place import HEAD_ITEM, DynamoPlace
from metastores.dynamodb_table import ATTEMPTS, DynamoTable, Json
from metastores.errors import MetaStoreUnavailableError
from metastores.stats import MetaStats

BATCH = 25
"""Items that one request may write."""


async def delete_items(table: DynamoTable, keys: Sequence[Json], stats: MetaStats) -> None:
    """Delete at most `BATCH` items. A table that is short of capacity does a part of it at a time: only an attempt that
    got nothing done counts against it. Raises `MetaStoreError`."""
    left: Any = [{"DeleteRequest": {"Key": key}} for key in keys]
    idle = 0
    while idle < ATTEMPTS:
        answer = await table.call("batch_write_item", stats, RequestItems={table.table: left})
        unprocessed = answer.get("UnprocessedItems", {}).get(table.table, ())
        if not unprocessed:
            return
        idle = 0 if len(unprocessed) < len(left) else idle + 1
        left = unprocessed
        stats.retries += 1
        await table.runtime.back_off(idle)
    raise MetaStoreUnavailableError(f"DynamoDB table {table.table} left deletes unprocessed")


async def erase(place: DynamoPlace, stats: MetaStats) -> None:
    """Delete all items of a database, its head first: a later commit finds none. Called again it goes on.
    Raises `MetaStoreError`."""
    table, _, _ = await place.to_write()
    await delete_items(table, [place.key(HEAD_ITEM)], stats)
    while True:
        answer = await table.call(
            "query",
            stats,
            TableName=table.table,
            ConsistentRead=True,
            KeyConditionExpression="#name = :name",
            ProjectionExpression="#item",
            ExpressionAttributeNames={"#name": "name", "#item": "item"},
            ExpressionAttributeValues={":name": {"S": place.name}},
        )
        items = [place.key(item["item"]["S"]) for item in answer.get("Items", ())]
        if not items:
            return
        for at in range(0, len(items), BATCH):
            await delete_items(table, items[at : at + BATCH], stats)
