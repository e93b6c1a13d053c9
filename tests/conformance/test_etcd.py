"""The shipped metastore suites over an etcd of one member. As `tests.conformance.test_metastores`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from metastores.etcd import EtcdFactory
from metastores.etcd_client.access import EtcdAccess
from metastores.etcd_client.client import EtcdClient
from metastores.object_store_errors import OutcomeUnknownError
from metastores.protocol import MetaStore, MetaStoreFactory, Register
from metastores.testing import MemoryObjects, MetaStoreSuite, RegisterSuite, Wire
from metastores.testing.wire import LostError
from tests.conformance.test_metastores import Backend, MergedAreas, in_one_loop


class WiredEtcd:
    """A client whose transactions with conditions go over ``wire``."""

    def __init__(self, client: EtcdClient, wire: Wire) -> None:
        self._client = client
        self._wire = wire

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._client, operation)

    async def txn(self, *arguments: Any) -> Any:
        """One request, or none, or two."""
        try:
            return await self._wire.carry(lambda: self._client.txn(*arguments))
        except LostError as error:
            raise OutcomeUnknownError(str(error)) from error


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def etcd_clients(etcd_url: str) -> AsyncIterator[Sequence[EtcdClient]]:
    """Two clients of one etcd."""
    endpoints = etcd_url.removeprefix("etcd://").split(",")
    clients = [EtcdClient(EtcdAccess.of(endpoints, tls=False, environment={})) for _ in range(2)]
    yield clients
    for client in clients:
        await client.close()
        await client.close()


@pytest.mark.timeout(600)
class InEtcd(Backend):
    """An etcd and two clients."""

    racers = 4
    rounds = 2
    body_sizes = (10, 32_768, 32_769, 2_000_000)

    @pytest.fixture(autouse=True)
    def _clients(self, etcd_clients: Sequence[EtcdClient]) -> None:
        self.clients = etcd_clients

    def factories(self, count: int) -> Sequence[MetaStoreFactory]:
        return [EtcdFactory((), client=self.clients[number % 2]) for number in range(count)]

    def wired(self, wires: Sequence[Wire]) -> Sequence[MetaStoreFactory]:
        """A factory for each wire."""
        return [EtcdFactory((), client=WiredEtcd(self.clients[number % 2], wire)) for number, wire in enumerate(wires)]

    async def make_wired_metastores(self, wires: Sequence[Wire]) -> Sequence[MetaStore]:
        """See `MetaStoreSuite`."""
        name, objects = self.name(), MemoryObjects()
        return [factory.manifest(objects, name, self.layout) for factory in self.wired(wires)]

    async def make_wired_registers(self, wires: Sequence[Wire]) -> Sequence[Register]:
        """See `RegisterSuite`."""
        name, objects = self.name(), MemoryObjects()
        return [factory.register(objects, name) for factory in self.wired(wires)]


@in_one_loop
class TestEtcdMetaStore(InEtcd, MetaStoreSuite):
    """Head and bodies in keys, large bodies as objects."""


@in_one_loop
class TestMergedAreasOfEtcdMetaStore(MergedAreas, InEtcd, MetaStoreSuite):
    """A collection's head and bodies in keys."""


@in_one_loop
class TestEtcdRegister(InEtcd, RegisterSuite):
    """The writer's key."""
