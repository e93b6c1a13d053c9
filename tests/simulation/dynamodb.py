"""A DynamoDB table in several regions, each with a replica: an eventual global table (MREC) as its service describes.

A condition is judged by the replica that is asked. What a replica takes in is copied to the others item by item, each
copy with a lag of its own, so in any order; of two writes of an item the later one stays, by clocks of regions that do
not agree. The control plane answers at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from metastores.bodies import MemoryBodies
from metastores.chained_register import ChainedRegister
from metastores.dynamodb import BODY_PREFIX
from metastores.dynamodb_place import HEAD_ITEM
from metastores.factories import DynamoDBFactory
from metastores.names import MANIFEST, Layout, database_name
from metastores.protocol import ConditionalObjects, Needs, Register, StoredObject, VersionRef
from metastores.register_store import RegisterMetaStore
from tests.simulation.faults import RequestFailedError
from tests.simulation.network import Network, Sender
from tests.simulation.node import Node
from tests.simulation.world import World
from tests.support.dynamo_fake import FakeDynamo, Json, answered

REGIONS = ("eu-west-1", "us-east-1")
Stamp = tuple[float, str]
Key = tuple[str, str]


class SimGlobalTable:
    """The replicas, by region. ``lag``: seconds a copy takes; ``skew``: by how many the clocks of regions differ."""

    def __init__(self, world: World, *, lag: tuple[float, float] = (0.0, 2.0), skew: float = 0.5) -> None:
        self._loop = world.loop
        self._rng = random.Random(world.rng.getrandbits(64))
        self._lag = lag
        shown = {"Replicas": [{"RegionName": region} for region in REGIONS], "GlobalTableVersion": "2019.11.21"}
        self.replicas = {region: FakeDynamo({}, region, shown) for region in REGIONS}
        self._stamps: dict[str, dict[Key, Stamp]] = {region: {} for region in REGIONS}
        self._skews = {region: self._rng.uniform(-skew, skew) for region in REGIONS}

    def write(self, region: str, key: Key, item: Json | None) -> None:
        """One write of ``region``, in the step it has its effect; ``None`` deletes."""
        stamp = (self._loop.time() + self._skews[region], region)
        stamp = max(stamp, self._stamps[region].get(key, stamp))
        self._take(region, key, item, stamp)
        for other in REGIONS:
            if other != region:
                self._loop.call_later(self._rng.uniform(*self._lag), self._take, other, key, item, stamp)

    def _take(self, region: str, key: Key, item: Json | None, stamp: Stamp) -> None:
        if stamp < self._stamps[region].get(key, stamp):
            return
        self._stamps[region][key] = stamp
        if item is None:
            self.replicas[region].items.pop(key, None)
        else:
            self.replicas[region].items[key] = item


class SimDynamo:
    """The client of one process for one region's replica: the calls that `DynamoTable` sends."""

    def __init__(self, network: Network, process: Sender, table: SimGlobalTable, region: str) -> None:
        self._network = network
        self._process = process
        self._table = table
        self._region = region
        self._replica = table.replicas[region]
        self.meta = SimpleNamespace(region_name=region)

    async def _send(self, operation: str, what: str, effect: Callable[[], Json], *, write: bool) -> Json:
        def judged() -> Json | ClientError:
            try:
                return effect()
            except ClientError as error:
                return error

        name = f"{self._region} {what}"
        try:
            answer = await self._network.send(self._process, operation, name, judged, write=write)
        except RequestFailedError as error:
            failed = ReadTimeoutError if error.outcome == "unknown" else ConnectTimeoutError
            raise failed(endpoint_url=self._region, error=error) from error
        if isinstance(answer, ClientError):
            raise answer
        return answer

    async def describe_table(self, **_: Any) -> Json:
        return {"Table": self._replica.description}

    async def describe_global_table(self, **_: Any) -> Json:
        raise answered("GlobalTableNotFoundException")

    async def get_item(self, *, Key: Json, **_: Any) -> Json:
        def get() -> Json:
            found = self._replica.items.get(_key(Key))
            return {} if found is None else {"Item": found}

        return await self._send("item-get", Key["item"]["S"], get, write=False)

    async def put_item(self, *, Item: Json, **arguments: Any) -> Json:
        def put() -> Json:
            self._replica.check_condition(Item, arguments)
            self._table.write(self._region, _key(Item), Item)
            return {}

        return await self._send("item-put", Item["item"]["S"], put, write=True)

    async def query(self, *, ExpressionAttributeValues: Json, **_: Any) -> Json:
        name, prefix = (ExpressionAttributeValues[each]["S"] for each in (":name", ":prefix"))
        return await self._send("item-query", prefix, lambda: self._replica.found(name, prefix), write=False)

    async def batch_write_item(self, *, RequestItems: Json) -> Json:
        ((_, requests),) = RequestItems.items()
        keys = [_key(request["DeleteRequest"]["Key"]) for request in requests]

        def delete() -> Json:
            for key in keys:
                self._table.write(self._region, key, None)
            return {}

        return await self._send("item-delete", str(len(keys)), delete, write=True)


def _key(item: Json) -> Key:
    return item["name"]["S"], item["item"]["S"]


def factory_in(world: World, node: Node, table: SimGlobalTable, region: str) -> DynamoDBFactory:
    """The product's factory in a process of ``region``, which reaches the other regions, too."""

    def client(where: str) -> SimDynamo:
        return SimDynamo(world.network, node, table, where)

    return DynamoDBFactory("table", runtime=node.metadata_runtime, client=client(region), client_in=client)


class _Replica(MemoryBodies):
    """What one replica has of a database, without a network: head and bodies."""

    def __init__(self, table: SimGlobalTable, name: str, region: str) -> None:
        super().__init__()
        self._items = table.replicas[region].items
        self._database = database_name(name)
        self.name = HEAD_ITEM

    async def load(self) -> StoredObject | None:
        """The head."""
        item = self._items.get((self._database, HEAD_ITEM))
        return None if item is None else StoredObject(bytes(item["value"]["B"]), item["tag"]["S"])

    async def store(self, data: bytes, token: str, etag: str | None) -> str | None:
        raise NotImplementedError("it is only looked at")

    async def get(self, ref: VersionRef) -> bytes | None:
        item = self._items.get((self._database, f"{BODY_PREFIX}{ref.version:020}.{ref.token}"))
        return None if item is None else bytes(item["value"]["B"])

    async def close(self) -> None:
        """Nothing to release."""


class ReplicaFactory:
    """What the replica in ``region`` has, for who looks at it without a network. Bodies are small enough for items."""

    needs = Needs()

    def __init__(self, node: Node, table: SimGlobalTable, region: str) -> None:
        self._runtime = node.metadata_runtime
        self._table = table
        self._region = region

    def manifest(self, objects: ConditionalObjects, name: str, layout: Layout = MANIFEST) -> RegisterMetaStore:
        """See `MetaStoreFactory.manifest`."""
        replica = _Replica(self._table, name, self._region)
        return RegisterMetaStore(ChainedRegister(replica, self._runtime), replica, self._runtime, layout=layout)

    def register(self, objects: ConditionalObjects, name: str) -> Register:
        """See `MetaStoreFactory.register`."""
        raise NotImplementedError("only versions are looked at")

    async def close(self) -> None:
        """Nothing to release."""
