"""The shipped metastore suites over every backend: memory, a dictionary, a folder, S3, Azure, DynamoDB.

Each race has 4 to 12 writers in the short form, 20 writers with 10 writes each in the full one. Clients and what they
reach are made once for a class, whose tests share one event loop.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import pytest_asyncio
from aiobotocore.session import AioSession
from botocore.exceptions import ClientError

from metastores.dynamodb import DynamoDBMetaStore
from metastores.factories import DynamoDBFactory, IfMatchFactory, PutIfAbsentFactory
from metastores.memory import MemoryFactory
from metastores.names import MANIFEST, MERGED_AREAS
from metastores.protocol import ConditionalObjects, MetaStore, MetaStoreFactory, Register
from metastores.testing import MemoryObjects, MetaStoreSuite, RegisterSuite, Wire, WiredObjects
from slate_async.objectstore.local import LocalStore
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.url import open_store
from slate_async.runtime.system import end_threads, system_runtime
from tests.conformance.azure_container import create_container
from tests.servers.moto import AWS_ENVIRONMENT
from tests.servers.node import AZURITE_ACCOUNT, AZURITE_KEY

NUMBERS = itertools.count()
REGION = "us-east-1"
TwoFactories: TypeAlias = tuple[str, Sequence[DynamoDBFactory]]
for_class = pytest_asyncio.fixture(scope="class", loop_scope="class")
in_one_loop = pytest.mark.asyncio(loop_scope="class")


def use_aws_environment(environment: pytest.MonkeyPatch) -> None:
    """What the fixture `aws_environment` does, for a class."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        environment.delenv(name, raising=False)
    for name, value in AWS_ENVIRONMENT.items():
        environment.setenv(name, value)


class Backend:
    """One factory per handle, as processes would have, over the objects of a database never written."""

    racers = 12
    rounds = 5
    layout = MANIFEST

    @pytest.fixture(autouse=True)
    def _long_form(self, full: bool) -> None:
        if full:
            self.racers, self.rounds = 20, 10

    def factories(self, count: int) -> Sequence[MetaStoreFactory]:
        """``count`` factories that share nothing but the backend."""
        raise NotImplementedError

    def views(self, count: int) -> Sequence[ConditionalObjects]:
        """``count`` views of one new, empty folder."""
        return [MemoryObjects()] * count

    def name(self) -> str:
        """A name no other database of this run has."""
        return f"s3://bucket/{next(NUMBERS)}"

    async def make_metastores(self, count: int) -> Sequence[MetaStore]:
        """See `MetaStoreSuite`."""
        name = self.name()
        return [
            factory.manifest(objects, name, self.layout)
            for factory, objects in zip(self.factories(count), self.views(count), strict=True)
        ]

    async def make_registers(self, count: int) -> Sequence[Register]:
        """See `RegisterSuite`."""
        name = self.name()
        return [
            factory.register(objects, name)
            for factory, objects in zip(self.factories(count), self.views(count), strict=True)
        ]


class InMemory(Backend):
    """`MemoryFactory`, shared by its handles. It has no requests to lose: wires go around whole calls."""

    def factories(self, count: int) -> Sequence[MetaStoreFactory]:
        return [MemoryFactory()] * count


class OverObjects(Backend):
    """Metadata in objects, its requests to them over the wires."""

    async def make_wired_metastores(self, wires: Sequence[Wire]) -> Sequence[MetaStore]:
        """See `MetaStoreSuite`."""
        parts = zip(self.factories(len(wires)), self.views(len(wires)), wires, strict=True)
        name = self.name()
        return [factory.manifest(WiredObjects(objects, wire), name, self.layout) for factory, objects, wire in parts]

    async def make_wired_registers(self, wires: Sequence[Wire]) -> Sequence[Register]:
        """See `RegisterSuite`."""
        parts = zip(self.factories(len(wires)), self.views(len(wires)), wires, strict=True)
        name = self.name()
        return [factory.register(WiredObjects(objects, wire), name) for factory, objects, wire in parts]


class PutIfAbsent(OverObjects):
    """Versions, created one after another."""

    def factories(self, count: int) -> Sequence[MetaStoreFactory]:
        return [PutIfAbsentFactory() for _ in range(count)]


class IfMatch(OverObjects):
    """The pointer protocol."""

    def factories(self, count: int) -> Sequence[MetaStoreFactory]:
        return [IfMatchFactory() for _ in range(count)]


class MergedAreas:
    """Versions of a collection's merged area instead of a manifest's."""

    layout = MERGED_AREAS


class TestMemoryMetaStore(InMemory, MetaStoreSuite):
    """Memory."""


class TestMemoryRegister(InMemory, RegisterSuite):
    """Memory."""


class TestPutIfAbsentMetaStore(PutIfAbsent, MetaStoreSuite):
    """Over a dictionary whose etags are MD5, as S3's."""


class TestMergedAreasOfPutIfAbsentMetaStore(MergedAreas, PutIfAbsent, MetaStoreSuite):
    """A collection's versions there."""


class TestIfMatchMetaStore(IfMatch, MetaStoreSuite):
    """The same."""


class TestMergedAreasOfIfMatchMetaStore(MergedAreas, IfMatch, MetaStoreSuite):
    """A collection's versions there."""


class TestIfMatchRegister(IfMatch, RegisterSuite):
    """The writer's register there."""


class EngineObjects:
    """Folders of the engine's stores, seen through its adapter; threads for one test."""

    @pytest.fixture(autouse=True)
    def _runtime(self) -> Iterator[None]:
        self.runtime = system_runtime()
        yield
        end_threads(self.runtime)


class InEngineMemory(EngineObjects):
    """The engine's memory store."""

    def views(self, count: int) -> Sequence[ConditionalObjects]:
        return [MetaObjects(MemoryStore(self.runtime.clock))] * count


class TestPutIfAbsentInEngineMemory(InEngineMemory, PutIfAbsent, MetaStoreSuite):
    """Versions."""


class InFolder(EngineObjects):
    """A local folder, opened anew by every handle."""

    racers = 4
    rounds = 3

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.root = tmp_path

    def views(self, count: int) -> Sequence[ConditionalObjects]:
        folder = self.root / str(next(NUMBERS))
        return [MetaObjects(LocalStore(folder, self.runtime)) for _ in range(count)]


class TestPutIfAbsentInFolder(InFolder, PutIfAbsent, MetaStoreSuite):
    """Versions in a folder."""


class TestMergedAreasOfPutIfAbsentInFolder(MergedAreas, InFolder, PutIfAbsent, MetaStoreSuite):
    """A collection's versions in a folder."""


class TestIfMatchInFolder(InFolder, IfMatch, MetaStoreSuite):
    """Pointer and bodies in a folder."""


class TestRegisterInFolder(InFolder, IfMatch, RegisterSuite):
    """The writer's register in a folder."""


@pytest.mark.timeout(600)
class Remote:
    """Prefixes of one bucket, reached by two clients."""

    racers = 4
    rounds = 2
    body_sizes = (10, 100_000, 2_000_000, 20_000_000)
    stores: Sequence[ObjectStore]

    def views(self, count: int) -> Sequence[ConditionalObjects]:
        folder = f"db-{next(NUMBERS)}"
        return [MetaObjects(PrefixedStore(self.stores[number % 2], folder)) for number in range(count)]


@asynccontextmanager
async def two_clients(url: str) -> AsyncIterator[Sequence[ObjectStore]]:
    """Two clients of the bucket at ``url``."""
    runtime = system_runtime()
    stores = [open_store(url, runtime)[0] for _ in range(2)]
    yield stores
    for store in stores:
        await store.close()
    end_threads(runtime)


@for_class
async def s3_clients(s3_endpoint: str) -> AsyncIterator[Sequence[ObjectStore]]:
    """Of a new bucket."""
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    with pytest.MonkeyPatch.context() as environment:
        use_aws_environment(environment)
        async with AioSession().create_client("s3", endpoint_url=s3_endpoint, region_name=REGION) as client:
            await client.create_bucket(Bucket=bucket)
        url = f"s3://{bucket}?endpoint_url={s3_endpoint}&region={REGION}&client=obstore"
        async with two_clients(url) as clients:
            yield clients


class InS3(Remote):
    """The locked moto server through obstore."""

    @pytest.fixture(autouse=True)
    def _clients(self, s3_clients: Sequence[ObjectStore]) -> None:
        self.stores = s3_clients


@in_one_loop
class TestPutIfAbsentInS3(InS3, PutIfAbsent, MetaStoreSuite):
    """Versions in S3."""


@in_one_loop
class TestMergedAreasOfPutIfAbsentInS3(MergedAreas, InS3, PutIfAbsent, MetaStoreSuite):
    """A collection's versions in S3."""


@in_one_loop
class TestIfMatchInS3(InS3, IfMatch, MetaStoreSuite):
    """Pointer and bodies in S3."""


@in_one_loop
class TestMergedAreasOfIfMatchInS3(MergedAreas, InS3, IfMatch, MetaStoreSuite):
    """A collection's pointer and bodies in S3."""


@in_one_loop
class TestRegisterInS3(InS3, IfMatch, RegisterSuite):
    """The writer's register in S3."""


@for_class
async def azure_clients(azurite_endpoint: str) -> AsyncIterator[Sequence[ObjectStore]]:
    """Of a new container."""
    container = f"c-{uuid.uuid4().hex[:12]}"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AZURE_STORAGE_ACCOUNT_NAME", AZURITE_ACCOUNT)
        environment.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY)
        await create_container(azurite_endpoint, container, AZURITE_ACCOUNT, AZURITE_KEY)
        async with two_clients(f"az://{container}?endpoint_url={azurite_endpoint}") as clients:
            yield clients


class InAzure(Remote):
    """Azurite, whose etags change with every write."""

    @pytest.fixture(autouse=True)
    def _clients(self, azure_clients: Sequence[ObjectStore]) -> None:
        self.stores = azure_clients


@in_one_loop
class TestPutIfAbsentInAzure(InAzure, PutIfAbsent, MetaStoreSuite):
    """Versions in Azure."""


@in_one_loop
class TestIfMatchInAzure(InAzure, IfMatch, MetaStoreSuite):
    """Pointer and bodies in Azure."""


@in_one_loop
class TestRegisterInAzure(InAzure, IfMatch, RegisterSuite):
    """The writer's register in Azure."""


class WiredDynamo:
    """A client whose conditional puts go over ``wire``."""

    def __init__(self, client: Any, wire: Wire) -> None:
        self._client = client
        self._wire = wire

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._client, operation)

    async def put_item(self, **arguments: Any) -> Mapping[str, Any]:
        """One request, or none, or two."""
        if "ConditionExpression" not in arguments:
            answer = await self._answer(arguments)
        else:
            answer = await self._wire.carry(lambda: self._answer(arguments))
        if isinstance(answer, ClientError):
            raise answer
        return answer

    async def _answer(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | ClientError:
        """What the server says, a refusal included."""
        try:
            answer: Mapping[str, Any] = await self._client.put_item(**arguments)
        except ClientError as refusal:
            return refusal
        return answer


@pytest.mark.timeout(600)
class Dynamo(Backend):
    """A table and two clients."""

    racers = 4
    rounds = 2
    body_sizes = (10, 100_000, 299_000, 300_001, 420_000, 20_000_000)
    table: str
    shared: Sequence[DynamoDBFactory]

    def factories(self, count: int) -> Sequence[MetaStoreFactory]:
        return [self.shared[number % 2] for number in range(count)]

    async def wired(self, wires: Sequence[Wire]) -> Sequence[MetaStoreFactory]:
        """A factory for each wire."""
        clients = [await factory._table._connected() for factory in self.shared]
        return [
            DynamoDBFactory(self.table, client=WiredDynamo(clients[number % 2], wire))
            for number, wire in enumerate(wires)
        ]

    async def make_wired_metastores(self, wires: Sequence[Wire]) -> Sequence[MetaStore]:
        """See `MetaStoreSuite`."""
        name, objects = self.name(), MemoryObjects()
        return [factory.manifest(objects, name, self.layout) for factory in await self.wired(wires)]

    async def make_wired_registers(self, wires: Sequence[Wire]) -> Sequence[Register]:
        """See `RegisterSuite`."""
        name, objects = self.name(), MemoryObjects()
        return [factory.register(objects, name) for factory in await self.wired(wires)]


@asynccontextmanager
async def two_factories(endpoint_url: str) -> AsyncIterator[TwoFactories]:
    """A new table and two factories on it, each with a client of its own."""
    table = f"slate-{next(NUMBERS)}"
    with pytest.MonkeyPatch.context() as environment:
        use_aws_environment(environment)
        assert await DynamoDBMetaStore.create_table(table, region=REGION, endpoint_url=endpoint_url)
        factories = [DynamoDBFactory(table, region=REGION, endpoint_url=endpoint_url) for _ in range(2)]
        yield table, factories
        for factory in factories:
            await factory.close()
            await factory.close()


@for_class
async def on_moto(s3_endpoint: str) -> AsyncIterator[TwoFactories]:
    """The locked moto server."""
    async with two_factories(s3_endpoint) as made:
        yield made


@for_class
async def on_dynalite(dynalite_endpoint: str) -> AsyncIterator[TwoFactories]:
    """dynalite, the second opinion."""
    async with two_factories(dynalite_endpoint) as made:
        yield made


class OnMoto(Dynamo):
    """The locked moto server."""

    @pytest.fixture(autouse=True)
    def _table(self, on_moto: TwoFactories) -> None:
        self.table, self.shared = on_moto


class OnDynalite(Dynamo):
    """dynalite, the second opinion."""

    @pytest.fixture(autouse=True)
    def _table(self, on_dynalite: TwoFactories) -> None:
        self.table, self.shared = on_dynalite


@in_one_loop
class TestDynamoMetaStore(OnMoto, MetaStoreSuite):
    """Head and bodies in items, large bodies as objects."""


@in_one_loop
class TestMergedAreasOfDynamoMetaStore(MergedAreas, OnMoto, MetaStoreSuite):
    """A collection's head and bodies in items."""


@in_one_loop
class TestDynamoRegister(OnMoto, RegisterSuite):
    """The writer's item."""


@in_one_loop
class TestDynaliteMetaStore(OnDynalite, MetaStoreSuite):
    """The same on dynalite."""


@in_one_loop
class TestDynaliteRegister(OnDynalite, RegisterSuite):
    """The same on dynalite."""
