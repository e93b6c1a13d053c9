"""Names of metastores, and that no secret gets through them."""

from __future__ import annotations

import pytest

from metastores.errors import MetaStoreInvalidError
from metastores.etcd import EtcdFactory
from metastores.factories import DynamoDBFactory, IfMatchFactory, PutIfAbsentFactory, parse_metastore
from metastores.memory import MemoryFactory
from metastores.protocol import MetaStoreFactory, Needs
from metastores.testing import MemoryObjects
from metastores.testing.metastore_suite import commit


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (None, PutIfAbsentFactory),
        ("put-if-absent", PutIfAbsentFactory),
        ("if-match", IfMatchFactory),
        ("dynamodb://my_table.v-1", DynamoDBFactory),
        ("dynamodb://Table?region=eu-west-1&endpoint_url=http%3A%2F%2Flocalhost%3A4566", DynamoDBFactory),
        ("dynamodb://Table?endpoint_url=http://localhost:4566", DynamoDBFactory),
        ("etcd://one:2379,two,[::1]:2379/a/b?tls=false", EtcdFactory),
        ("ETCD://one", EtcdFactory),
    ],
)
def test_known_names(spec: str | None, kind: type) -> None:
    assert isinstance(parse_metastore(spec), kind)


def test_a_factory_is_returned_as_it_is() -> None:
    factory = MemoryFactory()
    assert parse_metastore(factory) is factory


def test_region_and_endpoint_are_shown() -> None:
    shown = repr(parse_metastore("dynamodb://Table?region=eu-west-1&endpoint_url=http://localhost:4566"))
    assert "'Table'" in shown
    assert "eu-west-1" in shown
    assert "http://localhost:4566" in shown


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "etcd://key:hunter2@host",
        "etcd://host?password=hunter2",
        "etcd://host?tls=hunter2",
        "etcd://host/pre fix",
        "etcd://host:hunter2",
        "etcd://host,",
        "etcd://",
        "etcd://host#hunter2",
        "zookeeper://hunter2",
        "hunter2",
        "dynamodb://",
        "dynamodb://x",
        "dynamodb://ta ble",
        "dynamodb://table/hunter2",
        "dynamodb://table#hunter2",
        "dynamodb://key:hunter2@table",
        "dynamodb://table?secret_access_key=hunter2",
        "dynamodb://table?region=",
        "dynamodb://table?region=a&region=hunter2",
        "dynamodb://table?endpoint_url=http://key:hunter2@localhost",
        "dynamodb://table?endpoint_url=http://localhost?token=hunter2",
        "dynamodb://table?endpoint_url=ftp://hunter2",
    ],
)
def test_everything_else_is_refused_without_repeating_it(spec: str) -> None:
    with pytest.raises(MetaStoreInvalidError) as caught:
        parse_metastore(spec)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("factory", "needs"),
    [
        (PutIfAbsentFactory(), Needs(create=True, replace=False, register=True)),
        (IfMatchFactory(), Needs(create=True, replace=True, register=True)),
        (MemoryFactory(), Needs(create=False, replace=False, register=False)),
        (DynamoDBFactory("table"), Needs(create=False, replace=False, register=False)),
        (EtcdFactory(["host"]), Needs(create=False, replace=False, register=False)),
    ],
)
def test_what_is_asked_of_the_store(factory: MetaStoreFactory, needs: Needs) -> None:
    assert factory.needs == needs


async def test_memory_databases_are_kept_by_name_in_their_factory() -> None:
    factory, objects = MemoryFactory(), MemoryObjects()
    written = await commit(factory.manifest(objects, "memory://a/"), 1, b"x")
    assert await factory.manifest(objects, "memory://a").versions() == [written]
    assert await factory.manifest(objects, "memory://b").latest() is None
    assert await MemoryFactory().manifest(objects, "memory://a").latest() is None
    await factory.close()
    await factory.close()
