"""Where the items of one database are written and read: its home.

Rule: on an eventually consistent global table *every* request goes to the replica of the home region, from wherever. A
condition is judged there alone, and no other replica is linearizable: it may have the head before the head's body, or
still have what a collector has deleted. The near replica is asked for one thing, the home's name.

The head and the writer's register keep the home's region and the table's kind beside their value. So a writer waits
for no answer of the control plane; what was kept is verified beside it, and believed unasked only where being wrong
would do no harm: in the home region itself, and of a table that has no home.

Rule R23: docs/design/protocol-rules.md
"""

from __future__ import annotations

from typing import Any, NamedTuple

from metastores import names
from metastores.dynamodb_kind import TableKind
from metastores.dynamodb_table import DynamoTable, Json
from metastores.errors import MetaStoreCorruptionError

HEAD_ITEM = "head"


class Home(NamedTuple):
    """A database's home region, and the kind of table as it was kept; ``None`` in items of an earlier version."""

    region: str
    kept: TableKind | None


class DynamoPlace:
    """The place of the database ``name``. Head, bodies and register of one client share it."""

    def __init__(self, table: DynamoTable, name: str) -> None:
        self.table = table
        self.name = names.database_name(name)
        self._home: Home | None = None
        self._replica = table

    @property
    def replica(self) -> DynamoTable:
        """The replica that is read as far as is known: the home's, or the near one before anything was read."""
        return self._replica

    def key(self, item: str) -> Json:
        """The key of one of the database's items."""
        return {"name": {"S": self.name}, "item": {"S": item}}

    async def to_read(self) -> DynamoTable:
        """The replica to read from. Raises `MetaStoreError`."""
        if self._home is None:
            await self._find()
        return self._replica

    async def to_write(self) -> tuple[DynamoTable, str, TableKind]:
        """The replica to write to, and what to keep beside a value: home region and kind. A database that is not there
        is made here. Raises `MetaStoreInvalidError` for a table that excludes nobody, before anything is written."""
        if self._home is None:
            await self._find()
        if self._home is None:
            return self.table, await self.table.region(), await self.table.kind()
        self.table.verify_kind()
        kind = self.table.known_kind or self._home.kept or await self.table.kind()
        if kind is TableKind.EVENTUAL:
            self._replica = await self.table.in_region(self._home.region)
        return self._replica, self._home.region, kind

    async def see(self, item: Json, object_name: str) -> bool:
        """Take from an item where home is; whether it is elsewhere, so that the item must be read again there."""
        try:
            kept = TableKind(item["kind"]["S"]) if "kind" in item else None
            home = Home(item["home_region"]["S"], kept)
        except (KeyError, ValueError) as error:
            raise MetaStoreCorruptionError(
                f"attribute {error} is missing or unknown", object_name=object_name
            ) from error
        if home == self._home:
            return False
        before = self._replica
        self._replica = self.table if await self._near_will_do(home) else await self.table.in_region(home.region)
        self._home = home
        return self._replica is not before

    async def _near_will_do(self, home: Home) -> bool:
        if home.kept is TableKind.STRONG or home.region == await self.table.region():
            return True
        kind = home.kept if home.kept is TableKind.EVENTUAL else await self.table.kind()
        return kind is not TableKind.EVENTUAL

    async def _find(self) -> None:
        """Ask the near replica for the home's name."""
        answer = await self.table.call(
            "get_item",
            TableName=self.table.table,
            Key=self.key(HEAD_ITEM),
            ConsistentRead=True,
            ProjectionExpression="#home, #kind",
            ExpressionAttributeNames={"#home": "home_region", "#kind": "kind"},
        )
        item: Any = answer.get("Item")
        if item:
            await self.see(item, HEAD_ITEM)
