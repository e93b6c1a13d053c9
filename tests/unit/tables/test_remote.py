"""Catalogs behind a server have the verbs and the errors of local ones: each test runs against both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.errors import ConfigError, ConflictError, InvalidError, NotFoundError, UnavailableError
from slate_async.flight.auth import hashed_password
from slate_async.settings.serving import ServeSettings
from tests.engine import memory_store
from tests.support.flight import SCHEMA, rows, served


@pytest.fixture(params=["local", "remote", "small endpoints"])
async def catalog(request: Any) -> AsyncIterator[Any]:
    """With an empty table ``orders`` in database ``shop``."""
    limits = ServeSettings(endpoint_bytes=1 << 20, batch_bytes=65_536)
    async with served(memory_store(), settings=limits) as (local, server):
        if request.param == "local":
            yield local
            return
        if request.param == "small endpoints":
            server._service._settings = limits.model_copy(update={"endpoint_bytes": 1})
        async with slate.connect(f"grpc://127.0.0.1:{server.port}") as remote:
            yield remote


async def test_databases_and_tables_come_and_go(catalog: Any) -> None:
    await catalog.create_database("more")
    await catalog.create_database("more", if_not_exists=True)
    with pytest.raises(ConflictError, match="already"):
        await catalog.create_database("more")
    assert await catalog.list_databases() == ["more", "shop"]
    table = await catalog.create_table("more", "t", SCHEMA, properties={"a": "b"})
    assert (table.database, table.name) == ("more", "t")
    assert (await table.schema()).remove_metadata().equals(SCHEMA)
    with pytest.raises(ConflictError):
        await catalog.create_table("more", "t", SCHEMA)
    await catalog.rename_table("more", "t", "u")
    assert await catalog.list_tables("more") == ["u"]
    await catalog.drop_table("more", "u")
    assert await catalog.list_dropped("more") == ["u"]
    with pytest.raises(NotFoundError, match="'u'"):
        await catalog.table("more", "u")
    await catalog.undrop_table("more", "u")
    await catalog.drop_table("more", "u")
    await catalog.drop_database("more")
    with pytest.raises(NotFoundError):
        await catalog.list_tables("more")


async def test_rows_are_appended_overwritten_deleted_and_scanned(catalog: Any) -> None:
    table = await catalog.table("shop", "orders")
    for first in (0, 100):
        done = await table.append(rows(first, 100))
        assert (done.rows, done.duplicate) == (100, False)
    assert done.version == await table.version()
    assert (await table.scan().read()).sort_by("id").to_pydict() == rows(0, 200).to_pydict()
    deleted = await table.delete(slate.col("id") < 50)
    assert deleted.rows == 50
    found = await table.scan([("id", "<", 60)], ["name"]).read()
    assert sorted(found.column("name").to_pylist()) == [f"n{at}" for at in range(50, 60)]
    assert (await table.scan(limit=7).read()).num_rows == 7
    assert sum([batch.num_rows async for batch in table.scan()]) == 150
    await table.overwrite(rows(0, 3))
    assert (await table.scan().read()).num_rows == 3


async def test_the_same_append_id_is_in_once(catalog: Any) -> None:
    table = await catalog.table("shop", "orders")
    for named in (("job", 1), "one"):
        first = await table.append(rows(0, 5), append_id=named)
        again = await table.append(rows(0, 5), append_id=named)
        assert (first.duplicate, again.duplicate, again.version) == (False, True, first.version)
    assert (await table.scan().read()).num_rows == 10


async def test_an_upsert_keeps_one_row_a_key(catalog: Any) -> None:
    keyed = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    table = await catalog.create_table("shop", "keyed", keyed, key=["id"])
    await table.upsert(pa.table({"id": [1, 2], "name": ["a", "b"]}, keyed))
    done = await table.upsert(pa.table({"id": [2, 3], "name": ["c", "d"]}, keyed))
    assert (done.rows, done.replaced) == (2, 1)
    found = (await table.scan().read()).sort_by("id")
    assert found.column("name").to_pylist() == ["a", "c", "d"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pa.table({"id": ["x"]}), "column 'id' is of type int64, and what is given of type string"),
        (pa.table({"ids": [1]}), "no column 'ids'; is 'id' meant"),
        ("text", "rows are a pyarrow Table"),
    ],
)
async def test_rows_that_the_table_does_not_take(catalog: Any, data: Any, said: str) -> None:
    table = await catalog.table("shop", "orders")
    with pytest.raises(InvalidError, match=said):
        await table.append(data)
    assert await table.version() == 1


async def test_rows_from_iterables_and_readers(catalog: Any) -> None:
    table = await catalog.table("shop", "orders")

    async def some() -> AsyncIterator[pa.Table]:
        for first in range(3):
            yield rows(first, 1)

    await table.append(some())
    await table.append(rows(3, 4).to_reader(2))
    assert (await table.scan().read()).num_rows == 7

    async def broken() -> AsyncIterator[pa.Table]:
        yield rows(0, 5)
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        await table.append(broken())
    assert (await table.scan().read()).num_rows == 7


async def test_scans_of_what_is_not_there(catalog: Any) -> None:
    table = await catalog.table("shop", "orders")
    with pytest.raises(InvalidError, match="'nam'"):
        await table.scan(columns=["nam"]).read()
    with pytest.raises(InvalidError):
        await table.scan(slate.col("id") == "x").read()
    await catalog.drop_table("shop", "orders")
    with pytest.raises(NotFoundError):
        await table.scan().read()


async def test_outcomes_of_writes_are_known_afterwards() -> None:
    async with served(memory_store()) as (_, server), slate.connect(f"grpc://127.0.0.1:{server.port}") as remote:
        table = await remote.table("shop", "orders")
        done = await table.append(rows(0, 1), append_id=("job", 2))
        assert await table.outcome(("job", 2)) == {"applied": True, "version": done.version, "passed": False}
        assert (await table.outcome(("job", 1)))["passed"] is True
        assert (await table.outcome(("job", 3)))["applied"] is False
        named = await table.append(rows(0, 1), append_id="named")
        assert (await table.outcome("named"))["version"] == named.version


async def test_connections_by_password_and_what_is_refused(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        f'[users.ann]\npassword = "{hashed_password("secret", bytes(16))}"\ngrants = {{ shop = "read" }}\n'
    )
    async with served(memory_store(), tokens=tokens) as (_, server):
        url = f"grpc://127.0.0.1:{server.port}"
        async with slate.connect(url, user="ann", password="secret") as remote:
            table = await remote.table("shop", "orders")
            with pytest.raises(ConfigError, match="needs the role 'write'"):
                await table.append(rows(0, 1))
        with pytest.raises(ConfigError, match="user or password is wrong"):
            await slate.connect(url, user="ann", password="wrong")
        async with slate.connect(url, token="none") as remote:
            with pytest.raises(ConfigError, match="not known"):
                await remote.list_databases()
    async with slate.connect(url, timeout_ms=2_000) as remote:
        with pytest.raises(UnavailableError) as lost:
            await remote.create_database("x")
        assert lost.value.outcome == "unknown"
    for wrong in ("http://a:1", "grpc://a", "grpc://a:1/db", "a:1"):
        with pytest.raises(InvalidError, match="grpc"):
            slate.connect(wrong)
    with pytest.raises(ConfigError, match="in the clear"):
        slate.connect("grpc://example.org:1", token="x")
    with pytest.raises(InvalidError, match="password="):
        slate.connect(url, user="ann")
