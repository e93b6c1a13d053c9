"""A DynamoDB client in a dict, with what no emulator has: replicas, strong and eventual, and chosen failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

Json = Mapping[str, Any]


def answered(code: str, status: int = 400, message: str = "no") -> ClientError:
    """An error answer of the service."""
    return ClientError(
        {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Operation"
    )


class FakeDynamo:
    """The calls `DynamoTable` sends, answered by one replica. Replicas that share ``items`` are copies at every time,
    as those of a strong table; those of an eventual one have items of their own, and the test copies them.

    legacy: whether DescribeGlobalTable knows the table"""

    def __init__(
        self, items: dict[tuple[str, str], Json], region: str = "us-east-1", description: Json | None = None
    ) -> None:
        self.items = items
        self.meta = SimpleNamespace(region_name=region)
        keys = [{"AttributeName": "name", "KeyType": "HASH"}, {"AttributeName": "item", "KeyType": "RANGE"}]
        self.description = {"TableStatus": "ACTIVE", "KeySchema": keys, **(description or {})}
        self.legacy = False
        self.asked: list[str] = []
        self.failures: list[tuple[str, Callable[[Callable[[], Json]], Json]]] = []

    def fail(self, operation: str, error: Exception, *, times: int = 1, applied: bool = False) -> None:
        """The next ``times`` calls of ``operation`` raise ``error``, after their effect if ``applied``."""

        def failing(effect: Callable[[], Json]) -> Json:
            if applied:
                effect()
            raise error

        self.failures += [(operation, failing)] * times

    def _answer(self, operation: str, effect: Callable[[], Json]) -> Json:
        self.asked.append(operation)
        for number, (name, failing) in enumerate(self.failures):
            if name == operation:
                del self.failures[number]
                return failing(effect)
        return effect()

    async def describe_table(self, **_: Any) -> Json:
        return self._answer("describe_table", lambda: {"Table": self.description})

    async def describe_global_table(self, **_: Any) -> Json:
        def known() -> Json:
            if self.legacy:
                return {"GlobalTableDescription": {"GlobalTableStatus": "ACTIVE"}}
            raise answered("GlobalTableNotFoundException")

        return self._answer("describe_global_table", known)

    async def get_item(self, *, Key: Json, ConsistentRead: bool, **_: Any) -> Json:
        assert ConsistentRead
        found = self.items.get(_key(Key))
        return self._answer("get_item", lambda: {} if found is None else {"Item": found})

    async def put_item(self, *, Item: Json, **arguments: Any) -> Json:
        return self._answer("put_item", lambda: self._put(Item, arguments))

    def _put(self, item: Json, arguments: Json) -> Json:
        self.check_condition(item, arguments)
        self.items[_key(item)] = item
        return {}

    def check_condition(self, item: Json, arguments: Json) -> None:
        """Raise the service's answer if the put's condition does not hold."""
        old = self.items.get(_key(item))
        condition = arguments.get("ConditionExpression", "")
        wanted = arguments.get("ExpressionAttributeValues", {})
        holds = not condition or (
            old is None
            if condition.startswith("attribute_not_exists")
            else old is not None and old["tag"] == wanted[":tag"] and old["home_region"] == wanted[":home"]
        )
        if not holds:
            raise answered("ConditionalCheckFailedException")

    async def query(self, *, ExpressionAttributeValues: Json, **_: Any) -> Json:
        name, prefix = (ExpressionAttributeValues[each]["S"] for each in (":name", ":prefix"))
        return self._answer("query", lambda: self.found(name, prefix))

    def found(self, name: str, prefix: str) -> Json:
        """What a query finds."""
        keys = [item for owner, item in sorted(self.items) if owner == name and item.startswith(prefix)]
        return {"Items": [{"item": {"S": item}} for item in keys]}

    async def batch_write_item(self, *, RequestItems: Json) -> Json:
        ((table, requests),) = RequestItems.items()
        assert len(requests) <= 25

        def delete() -> Json:
            self.items.pop(_key(requests[0]["DeleteRequest"]["Key"]), None)
            return {"UnprocessedItems": {table: requests[1:]} if len(requests) > 1 else {}}

        return self._answer("batch_write_item", delete)


def _key(item: Json) -> tuple[str, str]:
    return item["name"]["S"], item["item"]["S"]
