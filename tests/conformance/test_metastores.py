"""The shipped metastore suites over every backend: memory, objects in memory and in a folder, DynamoDB."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from metastores.dynamodb import DynamoDBMetaStore
from metastores.factories import DynamoDBFactory, IfMatchFactory, PutIfAbsentFactory
from metastores.memory import MemoryFactory
from metastores.protocol import ConditionalObjects, MetaStore, MetaStoreFactory, Register
from metastores.testing import MemoryObjects, MetaStoreSuite, RegisterSuite
from slate_async.objectstore.local import LocalStore
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.runtime.system import system_runtime

NUMBERS = itertools.count()


class Backend:
    """One factory per handle, as processes would have, over objects made once per test."""

    factories: Sequence[MetaStoreFactory]

    def fresh(self, count: int) -> tuple[list[MetaStoreFactory], ConditionalObjects, str]:
        """``count`` factories and the objects and name of a database never written."""
        raise NotImplementedError

    async def make_metastores(self, count: int) -> Sequence[MetaStore]:
        """See `MetaStoreSuite`."""
        factories, objects, name = self.fresh(count)
        return [factory.manifest(objects, name) for factory in factories]

    async def make_registers(self, count: int) -> Sequence[Register]:
        """See `RegisterSuite`."""
        factories, objects, name = self.fresh(count)
        return [factory.register(objects, name) for factory in factories]


class InMemory(Backend):
    """`MemoryFactory`, shared by its handles."""

    def fresh(self, count: int) -> tuple[list[MetaStoreFactory], ConditionalObjects, str]:
        return [MemoryFactory()] * count, MemoryObjects(), "memory://m"


class PutIfAbsent(Backend):
    """Over a dictionary whose etags are MD5, as S3's."""

    def fresh(self, count: int) -> tuple[list[MetaStoreFactory], ConditionalObjects, str]:
        return [PutIfAbsentFactory() for _ in range(count)], MemoryObjects(), "memory://m"


class IfMatch(Backend):
    """The same store, the pointer protocol."""

    def fresh(self, count: int) -> tuple[list[MetaStoreFactory], ConditionalObjects, str]:
        return [IfMatchFactory() for _ in range(count)], MemoryObjects(), "memory://m"


class TestMemoryMetaStore(InMemory, MetaStoreSuite):
    """Memory."""


class TestMemoryRegister(InMemory, RegisterSuite):
    """Memory."""


class TestPutIfAbsentMetaStore(PutIfAbsent, MetaStoreSuite):
    """Versions."""


class TestIfMatchMetaStore(IfMatch, MetaStoreSuite):
    """Pointer and bodies."""


class TestIfMatchRegister(IfMatch, RegisterSuite):
    """The writer's register."""


class InFolder:
    """Real objects: a folder."""

    racers = 4
    rounds = 2
    body_sizes = (10, 100_000, 2_000_000)

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.root = tmp_path

    def folder(self) -> ConditionalObjects:
        """A new empty folder as objects."""
        return MetaObjects(LocalStore(self.root / str(next(NUMBERS)), system_runtime()))


class TestPutIfAbsentInFolder(InFolder, PutIfAbsent, MetaStoreSuite):
    """Versions in a folder."""

    def fresh(self, count: int) -> tuple[list[MetaStoreFactory], ConditionalObjects, str]:
        return [PutIfAbsentFactory() for _ in range(count)], self.folder(), "file:///x"


class TestIfMatchInFolder(InFolder, IfMatch, MetaStoreSuite):
    """Pointer and bodies in a folder."""

    def fresh(self, count: int) -> tuple[list[MetaStoreFactory], ConditionalObjects, str]:
        return [IfMatchFactory() for _ in range(count)], self.folder(), "file:///x"


class TestPutIfAbsentInEngineMemory(PutIfAbsent, MetaStoreSuite):
    """Versions in the engine's memory store."""

    def fresh(self, count: int) -> tuple[list[MetaStoreFactory], ConditionalObjects, str]:
        return (
            [PutIfAbsentFactory() for _ in range(count)],
            MetaObjects(MemoryStore(system_runtime().clock)),
            "memory://m",
        )


class Dynamo(Backend):
    """A table per class; two clients per test, for creating one costs 0.1 s."""

    racers = 4
    rounds = 2
    body_sizes = (10, 100_000, 299_000, 300_001, 420_000, 20_000_000)
    endpoint_url: str
    table: str

    async def _serve(self, endpoint_url: str) -> AsyncIterator[None]:
        self.table = f"slate-{next(NUMBERS)}"
        self.endpoint_url = endpoint_url
        assert await DynamoDBMetaStore.create_table(self.table, region="us-east-1", endpoint_url=endpoint_url)
        self.shared = [DynamoDBFactory(self.table, region="us-east-1", endpoint_url=endpoint_url) for _ in range(2)]
        yield
        for factory in self.shared:
            await factory.close()
            await factory.close()

    def fresh(self, count: int) -> tuple[list[MetaStoreFactory], ConditionalObjects, str]:
        factories: list[Any] = [self.shared[number % 2] for number in range(count)]
        return factories, MemoryObjects(), f"s3://bucket/{next(NUMBERS)}"


class OnMoto(Dynamo):
    """The locked moto server."""

    @pytest.fixture(autouse=True)
    async def _server(self, s3_endpoint: str, aws_environment: dict[str, str]) -> AsyncIterator[None]:
        async for _ in self._serve(s3_endpoint):
            yield


class OnDynalite(Dynamo):
    """dynalite, the second opinion."""

    @pytest.fixture(autouse=True)
    async def _server(self, dynalite_endpoint: str, aws_environment: dict[str, str]) -> AsyncIterator[None]:
        async for _ in self._serve(dynalite_endpoint):
            yield


class TestDynamoMetaStore(OnMoto, MetaStoreSuite):
    """Head and bodies in items, large bodies as objects."""


class TestDynamoRegister(OnMoto, RegisterSuite):
    """The writer's item."""


@pytest.mark.all_servers
class TestDynaliteMetaStore(OnDynalite, MetaStoreSuite):
    """The same on dynalite."""


@pytest.mark.all_servers
class TestDynaliteRegister(OnDynalite, RegisterSuite):
    """The same on dynalite."""
