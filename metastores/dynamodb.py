"""Metadata in DynamoDB: the head and the writer's register as items, bodies as items or, when large, as objects.

Table: hash key ``name`` (the database's URL), range key ``item``:

====================================  =============================================================
``head``                              ``value`` (bytes), ``tag``, ``home_region``, ``kind`` of the table
``writer``                            the same
``body#{version:020}.{token}``        ``value`` (bytes), or ``object`` = 1: the bytes are in the object store
====================================  =============================================================

Ordering rules: an object before the item that points to it, the body before the head, the head by ONE conditional
put (no transactions: tables with strong multi-region consistency refuse them). Deletes go the other way: object,
then item, so that no object is left behind that no item names; one whose item was never written is found by listing
both. Every read is strongly consistent.

Regions: see `metastores.dynamodb_place`. A database is created where the note in its folder says, and the note is
created once: two regions that create one database at once on an eventual table have one conditional write in common,
that of the object store.

Rule R23: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metastores import names
from metastores.bodies import ObjectBodies
from metastores.chained_register import ChainedRegister
from metastores.dynamodb_errors import RequestRefusedError
from metastores.dynamodb_items import BATCH, delete_items
from metastores.dynamodb_kind import check_schema
from metastores.dynamodb_place import HEAD_ITEM, DynamoPlace
from metastores.dynamodb_table import DynamoTable, Json, check_table_name
from metastores.errors import (
    MetaStoreCorruptionError,
    MetaStoreInvalidError,
    MetaStoreNotFoundError,
    MetaStoreUnavailableError,
)
from metastores.names import Layout
from metastores.note import PlaceNote
from metastores.protocol import ConditionalObjects, StoredObject, VersionRef
from metastores.register_store import RegisterMetaStore
from metastores.runtime import MetaRuntime
from metastores.stats import MetaStats

INLINE_LIMIT_BYTES = 8_192
"""An item costs a write unit for each KiB when it is put and again when it is deleted, an object one request: at eight
KiB the two cost about the same."""
MAX_INLINE_LIMIT_BYTES = 390_000
"""DynamoDB's items hold 400 KB, names included."""
WAIT_ROUNDS = 150
WRITER_ITEM = "writer"
BODY_PREFIX = "body#"


class DynamoCell:
    """`CellBackend` over one item. The etag is the writer's token. Throttled and repeated requests are counted in
    ``stats``."""

    def __init__(self, place: DynamoPlace, item: str, stats: MetaStats) -> None:
        self._place = place
        self._stats = stats
        self._key = place.key(item)
        self._item = item

    @property
    def name(self) -> str:
        """The item's range key; the database's URL is left out, so a table may be copied under another one."""
        return self._item

    async def load(self) -> StoredObject | None:
        """See `CellBackend.load`."""
        item = await self._get()
        if item and await self._place.see(item, self._item):
            item = await self._get()
        if not item:
            return None
        try:
            return StoredObject(bytes(item["value"]["B"]), item["tag"]["S"])
        except KeyError as error:
            raise MetaStoreCorruptionError(f"attribute {error} is missing", object_name=self._item) from error

    async def _get(self) -> Json | None:
        """The item as its home has it. The head itself says where that is."""
        table = self._place.replica if self._item == HEAD_ITEM else await self._place.to_read()
        answer = await table.call("get_item", self._stats, TableName=table.table, Key=self._key, ConsistentRead=True)
        item: Json | None = answer.get("Item")
        return item

    async def store(self, data: bytes, token: str, etag: str | None) -> str | None:
        """See `CellBackend.store`."""
        table, home, kind = await self._place.to_write()
        item = {
            **self._key,
            "value": {"B": data},
            "tag": {"S": token},
            "home_region": {"S": home},
            "kind": {"S": kind.value},
        }
        if etag is None:
            condition: dict[str, Any] = {
                "ConditionExpression": "attribute_not_exists(#name)",
                "ExpressionAttributeNames": {"#name": "name"},
            }
        else:
            condition = {
                "ConditionExpression": "#tag = :tag AND #home = :home",
                "ExpressionAttributeNames": {"#tag": "tag", "#home": "home_region"},
                "ExpressionAttributeValues": {":tag": {"S": etag}, ":home": {"S": home}},
            }
        return token if await table.put_if(item, condition, self._stats) else None

    async def close(self) -> None:
        """The table belongs to the factory; nothing to release."""


class DynamoRegister(ChainedRegister):
    """`Register` in one item of a table. ``stats`` counts its outcomes and what its requests met."""

    def __init__(
        self, table: DynamoTable, name: str, item: str = WRITER_ITEM, *, place: DynamoPlace | None = None
    ) -> None:
        stats = MetaStats()
        super().__init__(DynamoCell(place or DynamoPlace(table, name), item, stats), table.runtime, stats)


class DynamoBodies:
    """`BodyStore` in items; bodies over ``inline_limit_bytes`` go to ``objects``. Throttled and repeated requests are
    counted in ``stats``."""

    def __init__(
        self,
        place: DynamoPlace,
        objects: ConditionalObjects,
        inline_limit_bytes: int,
        stats: MetaStats,
        layout: Layout = names.MANIFEST,
    ) -> None:
        if not 0 <= inline_limit_bytes <= MAX_INLINE_LIMIT_BYTES:
            raise MetaStoreInvalidError(f"the inline limit is 0 to {MAX_INLINE_LIMIT_BYTES} bytes")
        self._place = place
        self._layout = layout
        self._note = PlaceNote(objects, layout, self._here)
        self._spilled = ObjectBodies(objects, layout)
        self._inline_limit_bytes = inline_limit_bytes
        self._stats = stats

    def _key(self, ref: VersionRef) -> Json:
        return self._place.key(f"{BODY_PREFIX}{ref.version:020}.{ref.token}")

    async def put(self, ref: VersionRef, data: bytes) -> None:
        """See `BodyStore.put`. Version 1 also leaves a note in the folder of where its head is to be. A table that the
        head would be refused on is refused before anything is written."""
        table, _, _ = await self._place.to_write()
        if ref.version == 1:
            await self._note.leave()
        body: Json = {"value": {"B": data}}
        if len(data) > self._inline_limit_bytes:
            await self._spilled.put(ref, data)
            body = {"object": {"N": "1"}}
        await table.call("put_item", self._stats, TableName=table.table, Item={**self._key(ref), **body})

    async def get(self, ref: VersionRef) -> bytes | None:
        """See `BodyStore.get`."""
        table = await self._place.to_read()
        answer = await table.call(
            "get_item", self._stats, TableName=table.table, Key=self._key(ref), ConsistentRead=True
        )
        item = answer.get("Item")
        if not item:
            return None
        if "object" in item:
            return await self._spilled.get(ref)
        return bytes(item["value"]["B"])

    async def list(self) -> Sequence[VersionRef]:
        """See `BodyStore.list`. Reads the items whole: DynamoDB charges a listing by what it passes over."""
        found = dict.fromkeys(await self._spilled.list())
        table = await self._place.to_read()
        start: Json = {}
        while True:
            answer = await table.call(
                "query",
                self._stats,
                TableName=table.table,
                ConsistentRead=True,
                KeyConditionExpression="#name = :name AND begins_with(#item, :prefix)",
                ProjectionExpression="#item",
                ExpressionAttributeNames={"#name": "name", "#item": "item"},
                ExpressionAttributeValues={":name": {"S": self._place.name}, ":prefix": {"S": BODY_PREFIX}},
                **start,
            )
            for item in answer.get("Items", ()):
                ref = self._layout.body_ref(
                    self._layout.folder + self._layout.before + item["item"]["S"].removeprefix(BODY_PREFIX)
                )
                if ref is not None:
                    found[ref] = None
            if not answer.get("LastEvaluatedKey"):
                return sorted(found)
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    async def delete(self, refs: Sequence[VersionRef]) -> None:
        """See `BodyStore.delete`."""
        await self._spilled.delete(refs)
        table, _, _ = await self._place.to_write()
        for at in range(0, len(refs), BATCH):
            await delete_items(table, [self._key(ref) for ref in refs[at : at + BATCH]], self._stats)

    async def check_empty(self) -> None:
        """See `BodyStore.check_empty`."""
        await self._note.check_empty()

    async def _here(self) -> str:
        """The table and its region as a metastore's URL; neither endpoint nor credentials."""
        table = self._place.table
        return f"dynamodb://{table.table}?region={await table.region()}\n"


class DynamoDBMetaStore(RegisterMetaStore):
    """`MetaStore` in a DynamoDB table, large bodies in ``objects``. ``name`` is the database's URL. ``stats`` counts
    its outcomes and what its requests met."""

    def __init__(
        self,
        table: DynamoTable,
        name: str,
        objects: ConditionalObjects,
        *,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
        place: DynamoPlace | None = None,
        layout: Layout = names.MANIFEST,
    ) -> None:
        stats = MetaStats()
        place = place or DynamoPlace(table, name)
        head = ChainedRegister(DynamoCell(place, HEAD_ITEM, stats), table.runtime)
        bodies = DynamoBodies(place, objects, inline_limit_bytes, stats, layout)
        super().__init__(head, bodies, table.runtime, stats, layout)

    @classmethod
    async def create_table(
        cls,
        table: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        provisioned: tuple[int, int] | None = None,
        runtime: MetaRuntime | None = None,
    ) -> bool:
        """Create ``table`` and wait until it is active; ``False`` if it was there already (and has the right keys).

        ``provisioned``: read and write units; on demand without them. Raises `MetaStoreInvalidError` for a name that
        no table has, or a table of that name with other keys, `MetaStoreUnavailableError` if it does not become active
        in time."""
        check_table_name(table)
        connection = DynamoTable(table, region=region, endpoint_url=endpoint_url, runtime=runtime)
        try:
            return await create_table(connection, provisioned)
        finally:
            await connection.close()


async def create_table(connection: DynamoTable, provisioned: tuple[int, int] | None) -> bool:
    """See `DynamoDBMetaStore.create_table`."""
    billing: Json = {"BillingMode": "PAY_PER_REQUEST"}
    if provisioned is not None:
        reads, writes = provisioned
        billing = {
            "BillingMode": "PROVISIONED",
            "ProvisionedThroughput": {"ReadCapacityUnits": reads, "WriteCapacityUnits": writes},
        }
    created = True
    try:
        await connection.call(
            "create_table",
            TableName=connection.table,
            KeySchema=[
                {"AttributeName": "name", "KeyType": "HASH"},
                {"AttributeName": "item", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": "name", "AttributeType": "S"},
                {"AttributeName": "item", "AttributeType": "S"},
            ],
            **billing,
        )
    except RequestRefusedError as error:
        if error.code != "ResourceInUseException":
            raise
        created = False
    for _ in range(WAIT_ROUNDS):
        try:
            description = (await connection.call("describe_table", TableName=connection.table))["Table"]
        except MetaStoreNotFoundError:
            description = {}  # not known everywhere yet
        if description.get("TableStatus") in ("ACTIVE", "UPDATING"):
            check_schema(connection.table, description)
            return created
        await connection.runtime.pause(0.2)
    raise MetaStoreUnavailableError(f"DynamoDB table {connection.table} did not become active in time")
