"""DynamoDB across regions: which region may own a database, where its items are asked for, what each table promises.

No emulator has global tables: `dynamo_fake.FakeDynamo` is one replica, and a test says what was copied to it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from metastores import names
from metastores.dynamodb import DynamoDBMetaStore
from metastores.dynamodb_kind import TableKind
from metastores.dynamodb_table import DynamoTable
from metastores.errors import MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.factories import DynamoDBFactory
from metastores.protocol import Committed, Conflict
from metastores.runtime import MetaRuntime
from metastores.testing import MemoryObjects
from metastores.testing.metastore_suite import commit, ref
from tests.support.dynamo_fake import FakeDynamo, answered

NAME = "s3://bucket/db"
HOME, AWAY = "us-east-1", "eu-west-1"
EVENTUAL = {"Replicas": [{"RegionName": HOME}, {"RegionName": AWAY}], "GlobalTableVersion": "2019.11.21"}
STRONG = {**EVENTUAL, "MultiRegionConsistency": "STRONG"}


async def no_sleep(seconds: float) -> None:
    await asyncio.sleep(0)


class Regions:
    """The replicas of one table, and a bucket that every region reaches."""

    def __init__(self, description: Any = None, *, shared: bool = False) -> None:
        items: dict[Any, Any] = {}
        self.clients = {region: FakeDynamo(items if shared else {}, region, description) for region in (HOME, AWAY)}
        self.objects = MemoryObjects()
        self.factories: list[DynamoDBFactory] = []

    def factory(self, region: str) -> DynamoDBFactory:
        made = DynamoDBFactory(
            "table",
            runtime=MetaRuntime(sleep=no_sleep),
            client=self.clients[region],
            client_in=self.clients.__getitem__,
        )
        self.factories.append(made)
        return made

    def store(self, region: str) -> Any:
        return self.factory(region).manifest(self.objects, NAME)

    def copy(self, *items: str) -> None:
        """Copy items, or all, from home to away."""
        for (name, item), value in self.clients[HOME].items.items():
            if not items or item.startswith(items):
                self.clients[AWAY].items[name, item] = value

    def written(self, region: str) -> list[str]:
        return sorted(item for _, item in self.clients[region].items)


# ---- kinds


@pytest.mark.parametrize("shown", [{}, {"GlobalTableVersion": "2017.11.29"}], ids=["asked for", "described"])
async def test_a_legacy_global_table_is_refused_before_anything_is_written(shown: dict[str, Any]) -> None:
    regions = Regions(shown)
    for region, client in regions.clients.items():
        client.legacy = not shown
        for _ in range(3):
            with pytest.raises(MetaStoreInvalidError, match=r"legacy global table.*2019\.11\.21"):
                await regions.store(region).commit(ref(1), b"x")
        assert regions.written(region) == []
    assert regions.objects.objects == {}


async def test_a_table_that_may_be_a_legacy_one_is_not_believed_to_be_none() -> None:
    regions = Regions()
    regions.clients[HOME].fail("describe_global_table", answered("AccessDeniedException", message="not allowed"))
    with pytest.raises(MetaStoreInvalidError, match="AccessDenied"):
        await regions.store(HOME).commit(ref(1), b"x")
    regions.clients[HOME].fail("describe_global_table", answered("InternalServerError", 500), times=100)
    with pytest.raises(MetaStoreUnavailableError):
        await regions.store(HOME).commit(ref(1), b"x")
    assert regions.written(HOME) == []


async def test_a_service_that_knows_no_global_tables_has_none() -> None:
    regions = Regions()
    regions.clients[HOME].fail("describe_global_table", answered("UnknownOperationException"))
    await commit(regions.store(HOME), 1, b"x")


async def test_a_writer_does_not_wait_for_the_control_plane() -> None:
    regions = Regions()
    await commit(regions.store(HOME), 1, b"x")
    client = regions.clients[HOME]
    asked = asyncio.Event()

    async def silent(**_: object) -> dict[str, object]:
        asked.set()
        await asyncio.Event().wait()
        return {}

    client.describe_table = silent  # type: ignore[method-assign]
    writer = regions.factory(HOME)
    await commit(writer.manifest(regions.objects, NAME), 2, b"y")
    register = writer.register(regions.objects, NAME)
    assert isinstance(await register.compare_and_set(None, b"z"), Committed)
    await asked.wait()
    await writer.close()


async def test_what_was_kept_of_the_table_is_verified_beside_the_writing() -> None:
    regions = Regions()
    await commit(regions.store(HOME), 1, b"x")
    client = regions.clients[HOME]
    client.legacy = True
    writer = regions.store(HOME)
    await commit(writer, 2, b"y")
    for _ in range(10):
        await asyncio.sleep(0)
    with pytest.raises(MetaStoreInvalidError, match="legacy"):
        await writer.commit(ref(3), b"z")


async def test_a_table_that_became_global_is_found_out() -> None:
    regions = Regions()
    await commit(regions.store(HOME), 1, b"x")
    regions.copy()
    for client in regions.clients.values():
        client.description.update(EVENTUAL)
    await commit(regions.store(AWAY), 2, b"y")
    assert not any("00002" in item for item in regions.written(AWAY))
    head = regions.clients[HOME].items[NAME, "head"]
    assert head["kind"]["S"] == TableKind.EVENTUAL.value


async def test_items_of_an_earlier_version_say_nothing_of_the_table() -> None:
    regions = Regions(EVENTUAL)
    await commit(regions.store(HOME), 1, b"x")
    head = regions.clients[HOME].items[NAME, "head"]
    regions.clients[HOME].items[NAME, "head"] = {key: value for key, value in head.items() if key != "kind"}
    regions.copy()
    assert (await regions.store(AWAY).latest()).payload == b"x"
    assert "describe_table" in regions.clients[AWAY].asked
    await commit(regions.store(HOME), 2, b"y")


# ---- an eventual table: everything at home


async def test_two_regions_that_create_a_database_at_once_make_one() -> None:
    regions = Regions(EVENTUAL)
    stores = [regions.store(region) for region in (HOME, AWAY)]
    assert [await store.latest() for store in stores] == [None, None]
    outcomes = await asyncio.gather(*(store.commit(ref(1), b"x") for store in stores), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes].count(Committed) == 1
    (refusal,) = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert isinstance(refusal, MetaStoreInvalidError)
    assert "says that it is in" in str(refusal)
    assert sorted(map(bool, map(regions.written, (HOME, AWAY)))) == [False, True]


async def test_without_conditional_writes_the_note_is_read_back() -> None:
    class Unconditional(MemoryObjects):
        async def create(self, key: str, data: bytes) -> str | None:
            raise MetaStoreInvalidError("not implemented")

    regions = Regions(EVENTUAL)
    regions.objects = Unconditional()
    late = regions.store(AWAY)
    assert await late.latest() is None
    await commit(regions.store(HOME), 1, b"x")
    with pytest.raises(MetaStoreInvalidError, match="says that it is in"):
        await late.commit(ref(1), b"y")
    assert regions.written(AWAY) == []


@pytest.mark.parametrize("applied", [True, False])
async def test_a_note_whose_answer_was_lost_is_read_back(applied: bool) -> None:
    class Lossy(MemoryObjects):
        async def create(self, key: str, data: bytes) -> str | None:
            if applied:
                await super().create(key, data)
            raise TimeoutError

    regions = Regions(EVENTUAL)
    regions.objects = Lossy()
    if applied:
        await commit(regions.store(HOME), 1, b"x")
    else:
        with pytest.raises(MetaStoreUnavailableError, match=names.MANIFEST.elsewhere):
            await regions.store(HOME).commit(ref(1), b"x")
        assert regions.written(HOME) == []


async def test_a_replica_that_has_the_head_before_its_body_is_not_asked_for_it() -> None:
    regions = Regions(EVENTUAL)
    writer = regions.store(HOME)
    await commit(writer, 1, b"x")
    await commit(writer, 2, b"y")
    regions.copy("head")
    assert (await regions.store(AWAY).latest()).payload == b"y"


async def test_a_replica_that_lags_behind_gc_is_not_asked_either() -> None:
    regions = Regions(EVENTUAL)
    writer = regions.store(HOME)
    await commit(writer, 1, b"x")
    regions.copy("head")
    newest = await commit(writer, 2, b"y")
    assert await writer.collect([]) == 1
    reader = regions.store(AWAY)
    assert (await reader.latest()).ref == newest
    assert await reader.versions() == [newest]


async def test_a_writer_away_from_home_writes_at_home() -> None:
    regions = Regions(EVENTUAL)
    first = regions.store(HOME)
    await commit(first, 1, b"x")
    regions.copy("head")
    factory = regions.factory(AWAY)
    second = factory.manifest(regions.objects, NAME)
    register = factory.register(regions.objects, NAME)
    assert (await second.latest()).payload == b"x"
    outcomes = await asyncio.gather(first.commit(ref(2), b"y"), second.commit(ref(2), b"z"))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Committed", "Conflict"]
    assert isinstance(await register.compare_and_set(None, b"r"), Committed)
    other = regions.factory(HOME).register(regions.objects, NAME)
    assert isinstance(await other.compare_and_set(None, b"s"), Conflict)
    assert regions.written(AWAY) == ["head"]


async def test_a_home_that_does_not_answer_is_waited_for_and_nothing_is_written_elsewhere() -> None:
    regions = Regions(EVENTUAL)
    await commit(regions.store(HOME), 1, b"x")
    regions.copy()
    before = dict(regions.clients[AWAY].items)
    down = EndpointConnectionError(endpoint_url="http://x", error=ConnectionResetError())
    for operation in ("get_item", "put_item"):
        regions.clients[HOME].fail(operation, down, times=1_000)
    with pytest.raises(MetaStoreUnavailableError):
        await regions.store(AWAY).latest()
    with pytest.raises(MetaStoreUnavailableError):
        await regions.store(AWAY).commit(ref(2), b"y")
    assert regions.clients[AWAY].items == before


async def test_strong_tables_are_asked_near_and_without_the_control_plane() -> None:
    regions = Regions(STRONG, shared=True)
    await commit(regions.store(HOME), 1, b"x")
    regions.clients[AWAY].fail("describe_table", answered("InternalServerError", 500), times=1_000)
    before = len(regions.clients[HOME].asked)
    await commit(regions.store(AWAY), 2, b"y")
    assert len(regions.clients[HOME].asked) == before


@pytest.mark.parametrize(
    ("given", "home"),
    [
        (None, None),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("https://dynamodb.eu-west-1.amazonaws.com", "https://dynamodb.us-east-1.amazonaws.com"),
    ],
)
async def test_the_endpoint_of_another_region_follows_from_the_one_given(given: str | None, home: str | None) -> None:
    table = DynamoTable("table", endpoint_url=given, client=FakeDynamo({}, AWAY))
    assert (await table.in_region(HOME))._endpoint_url == home
    assert await table.in_region(AWAY) is table
    assert await table.in_region(HOME) is await table.in_region(HOME)


async def test_the_store_alone_finds_home_too() -> None:
    regions = Regions(EVENTUAL)
    committed = await commit(regions.store(HOME), 1, b"x")
    regions.copy("head")
    table = DynamoTable("table", client=regions.clients[AWAY], client_in=regions.clients.__getitem__)
    record = await DynamoDBMetaStore(table, NAME, regions.objects).read(committed)
    assert record is not None
    assert record.payload == b"x"
