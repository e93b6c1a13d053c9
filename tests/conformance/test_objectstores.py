"""Every object store of the package against the shipped conformance suite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiobotocore.session import AioSession

from slate_async.errors import InvalidError
from slate_async.objectstore.local import LocalStore
from slate_async.objectstore.memory import MemoryObjects, MemoryStore
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.probe import probe
from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.testing import ObjectStoreConformance
from slate_async.objectstore.url import open_store
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.system import end_threads, system_runtime
from tests.conformance.azure_container import create_container
from tests.servers.node import AZURITE_ACCOUNT, AZURITE_KEY
from tests.servers.radosgw import Radosgw


class Conformance(ObjectStoreConformance):
    """The suite with a runtime, in its short form unless ``--full``."""

    __test__ = False

    @pytest.fixture(autouse=True)
    def _runtime(self, full: bool) -> Iterator[None]:
        self.runtime: Runtime = system_runtime()
        if not full:
            self.many_keys = self.short_many_keys
            self.racers, self.rounds, self.increments = self.short_races
        yield
        end_threads(self.runtime)

    short_races = (50, 20, 100)
    short_many_keys = 1_100


class TestMemory(Conformance):
    __test__ = True

    async def make_store(self) -> ObjectStore:
        self.objects = MemoryObjects()
        return MemoryStore(self.runtime.clock, self.objects)

    async def make_peer(self, store: ObjectStore) -> ObjectStore:
        return MemoryStore(self.runtime.clock, self.objects)


class TestLocal(Conformance):
    __test__ = True

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "new" / "store"

    async def make_store(self) -> ObjectStore:
        return LocalStore(self.folder, self.runtime)

    async def make_peer(self, store: ObjectStore) -> ObjectStore:
        return LocalStore(self.folder, self.runtime)


class TestPrefixed(Conformance):
    """A view of a folder, between neighbours whose names nearly match."""

    __test__ = True
    short_races = (10, 3, 20)

    async def make_store(self) -> ObjectStore:
        inner = MemoryStore(self.runtime.clock)
        for key in ("data/db-2/x", "data/db0", "data/d", "data/db"):
            await inner.put(key, b"not of this folder")
        return PrefixedStore(inner, "data/db")


class RemoteConformance(Conformance):
    """Stores behind a server: fewer races in the short form, and a bucket of its own for every test."""

    __test__ = False
    short_races = (50, 3, 24)
    backends = ("obstore", "obstore")

    @pytest.fixture(autouse=True)
    def _credentials(self, aws_environment: dict[str, str]) -> None:
        self.bucket = f"bucket-{uuid.uuid4().hex[:12]}"

    def s3_url(self, client: str) -> str:
        return f"s3://{self.bucket}?endpoint_url={self.endpoint}&region=us-east-1&client={client}"

    endpoint = ""

    async def make_bucket(self) -> None:
        async with AioSession().create_client("s3", endpoint_url=self.endpoint, region_name="us-east-1") as client:
            await client.create_bucket(Bucket=self.bucket)

    async def make_store(self) -> ObjectStore:
        await self.make_bucket()
        return open_store(self.s3_url(self.backends[0]), self.runtime)[0]

    async def make_peer(self, store: ObjectStore) -> ObjectStore:
        return open_store(self.s3_url(self.backends[1]), self.runtime)[0]


class TestS3Obstore(RemoteConformance):
    __test__ = True

    @pytest.fixture(autouse=True)
    def _server(self, s3_endpoint: str) -> None:
        self.endpoint = s3_endpoint


class TestS3Aiobotocore(TestS3Obstore):
    """With obstore as the peer: two SDKs race on the same objects."""

    backends = ("aiobotocore", "obstore")


class TestAzurite(RemoteConformance):
    """Azurite takes its time; its pages hold 5,000 keys, so more than 1,000 would not reach a second one anyway."""

    __test__ = True
    short_races = (50, 2, 16)
    short_many_keys = 150

    @pytest.fixture(autouse=True)
    def _server(self, azurite_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.endpoint = azurite_endpoint
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", AZURITE_ACCOUNT)
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY)

    async def make_bucket(self) -> None:
        await create_container(self.endpoint, self.bucket, AZURITE_ACCOUNT, AZURITE_KEY)

    def s3_url(self, client: str) -> str:
        return f"az://{self.bucket}?endpoint_url={self.endpoint}"


class TestLocalStackObstore(RemoteConformance):
    __test__ = True

    @pytest.fixture(autouse=True)
    def _server(self, localstack_endpoint: str) -> None:
        self.endpoint = localstack_endpoint


class TestLocalStackAiobotocore(TestLocalStackObstore):
    backends = ("aiobotocore", "obstore")


class TestRadosgw(RemoteConformance):
    """Creation is exclusive on it. Its If-Match refuses even the etag it gave, so what needs `Match` is left out
    here, and the probe must refuse it for that (`test_the_probe_judges_radosgw`)."""

    __test__ = True
    backends = ("obstore", "aiobotocore")

    @pytest.fixture(autouse=True)
    def _server(self, radosgw_endpoint: Radosgw, monkeypatch: pytest.MonkeyPatch) -> None:
        self.endpoint = radosgw_endpoint.url
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", radosgw_endpoint.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", radosgw_endpoint.secret_key)

    test_one_replacer_wins = None
    test_counter_loses_no_update = None
    test_create_and_match = None
    test_etags_agree = None
    test_metadata_is_kept = None
    test_large_object = None

    @pytest.mark.parametrize("client", ["obstore", "aiobotocore"])
    async def test_the_probe_judges_radosgw(self, client: str) -> None:
        await self.make_bucket()
        store = open_store(self.s3_url(client), self.runtime)[0]
        await probe(store, need_create=True, need_replace=False, ids=self.runtime.ids)
        with pytest.raises(InvalidError, match=r"no replace-if-match put succeeds.*dynamodb://"):
            await probe(store, need_create=True, need_replace=True, ids=self.runtime.ids)
        await store.close()
