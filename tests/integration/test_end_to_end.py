"""The same small story on every place: create, write, expire, flush, close, reopen, take over, scan both ways.

Stores that do not keep the promise of conditional writes are refused, in words that name the way out; and no
credential appears in a log, an error or a repr.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
import traceback
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

import slate_async as slate
from tests.conformance.azure_container import create_container
from tests.integration.places import LOGS, Place, make_place, make_table, url_query
from tests.servers.node import AZURITE_ACCOUNT, AZURITE_KEY, S3RVER_KEY
from tests.servers.radosgw import Radosgw

SECRET = "oNeVeRySeCrEtAcCeSsKeY+of/40/characters0"
SMALL: dict[str, object] = {"l0_sst_bytes": 8_192, "block_bytes": 512, "flush_bytes": 1_024, "flush_interval_ms": 2}
WORKERS = 4
PUTS = 8


class Servers:
    """Makes fresh places; a server starts when the first place on it is asked for."""

    def __init__(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._request = request
        self._monkeypatch = monkeypatch
        self._folder = folder

    def credentials(self, key: str, secret: str) -> None:
        self._monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        self._monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)

    def endpoint(self, name: str) -> str:
        found = self._request.getfixturevalue(f"{name}_endpoint")
        return found.url if isinstance(found, Radosgw) else str(found)

    async def memory(self) -> Place:
        return Place(f"memory://{uuid.uuid4().hex}/db", None, {})

    async def local(self) -> Place:
        return Place(str(self._folder / "db"), None, {})

    async def azure(self) -> Place:
        endpoint = self.endpoint("azurite")
        self._monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", AZURITE_ACCOUNT)
        self._monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY)
        container = f"c{uuid.uuid4().hex}"
        await create_container(endpoint, container, AZURITE_ACCOUNT, AZURITE_KEY)
        return Place(f"az://{container}/db?endpoint_url={quote(endpoint, safe='')}", None, {})

    async def s3(self, store: str = "s3", client: str = "obstore", server: str = "s3") -> Place:
        place = await make_place(store, LOGS[0], None, self.endpoint(server), client)
        return replace(place, settings={})

    async def with_table(self, place: Place, server: str = "s3") -> Place:
        return replace(place, metastore=await make_table(self.endpoint(server)))

    async def s3rver(self) -> Place:
        self.credentials(S3RVER_KEY, S3RVER_KEY)
        return await self.s3(server="s3rver")

    async def radosgw(self) -> Place:
        gateway = self._request.getfixturevalue("radosgw_endpoint")
        self.credentials(gateway.access_key, gateway.secret_key)
        return await self.s3(server="radosgw")


@pytest.fixture
def servers(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    aws_environment: dict[str, str],
) -> Servers:
    made = Servers(request, monkeypatch, tmp_path)
    made.credentials("test", SECRET)
    return made


MakePlace = Callable[[Servers], Awaitable[Place]]
PLACES: dict[str, MakePlace] = {
    "memory": lambda servers: servers.memory(),
    "local": lambda servers: servers.local(),
    "s3-obstore": lambda servers: servers.s3(),
    "s3-aiobotocore": lambda servers: servers.s3(client="aiobotocore"),
    "azure": lambda servers: servers.azure(),
    "s3-dynamodb": lambda servers: servers.s3("s3+dynamodb"),
    "s3-if-match": lambda servers: servers.s3("s3+if-match"),
    "s3-dynalite": lambda servers: _on_dynalite(servers),
}


async def _on_dynalite(servers: Servers) -> Place:
    return await servers.with_table(await servers.s3(), "dynalite")


class Watch:
    """Everything the package says in one test: log records, reprs, errors."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self._said: list[str] = []

    def note(self, *things: object) -> None:
        self._said += [f"{thing!r} {thing}" for thing in things]

    def note_error(self, error: BaseException) -> None:
        self.note(error)
        self._said += traceback.format_exception(error)

    def check(self, *secrets: str) -> None:
        """No secret, in none of the ways it may be written, and no signature made with it."""
        text = "\n".join([self._caplog.text, *self._said])
        for secret in secrets:
            encoded = base64.b64encode(secret.encode()).decode()
            for form in (secret, quote(secret, safe=""), quote(secret), encoded):
                assert form not in text
        for sign in ("AWS4-HMAC-SHA256", "X-Amz-Signature", "SharedKey "):
            assert sign not in text


@pytest.fixture
def watch(caplog: pytest.LogCaptureFixture) -> Iterator[Watch]:
    """Checks at the end of the test what was said in it."""
    for name in ("slate_async", "metastores"):
        caplog.set_level(logging.DEBUG, name)
    made = Watch(caplog)
    yield made
    made.check(SECRET, AZURITE_KEY)


# ---- the story


async def write_concurrently(db: slate.Db, expected: dict[bytes, bytes]) -> None:
    async def work(worker: int) -> None:
        for number in range(PUTS):
            key, value = b"user:%02d:%03d" % (worker, number), b"value %d %d" % (worker, number)
            handle = await db.put(key, value)
            assert handle.is_durable
            assert await db.get(key, durable=True) == value
            expected[key] = value

    async with asyncio.TaskGroup() as group:
        for worker in range(WORKERS):
            group.create_task(work(worker))


async def write_the_rest(db: slate.Db, expected: dict[bytes, bytes]) -> None:
    batch = slate.WriteBatch()
    batch.put(b"batch:a", b"")
    batch.put(b"batch:b", b"\0" * 3_000)
    batch.put(b"brief", b"gone", ttl=0.001)
    batch.put(b"long", b"here", ttl=timedelta(hours=1))
    batch.delete(b"user:00:000")
    handle = await db.write(batch, await_durable=False)
    await handle.durable()
    del expected[b"user:00:000"]
    expected |= {b"batch:a": b"", b"batch:b": b"\0" * 3_000, b"long": b"here"}
    await db.delete(b"never there")


async def check(db: slate.Db, expected: dict[bytes, bytes]) -> None:
    """Every read shows exactly what is expected."""
    pairs = sorted(expected.items())
    assert [pair async for pair in db.scan()] == pairs
    assert [pair async for pair in db.scan(reverse=True)] == pairs[::-1]
    users = [pair for pair in pairs if pair[0].startswith(b"user:")]
    assert [pair async for pair in db.scan(prefix=b"user:", limit=5)] == users[:5]
    assert [pair async for pair in db.scan(b"user:", b"user;", reverse=True, limit=5)] == users[:-6:-1]
    batches = [batch async for batch in db.scan(prefix=b"user:").batches(max_rows=7)]
    assert [pair for batch in batches for pair in zip(*batch.to_pydict().values(), strict=True)] == [
        (row.key, row.value, row.seq) async for row in db.scan(prefix=b"user:").rows()
    ]
    assert await db.get_many([*expected, b"brief", b"nothing"]) == [*expected.values(), None, None]
    row = await db.get_row(b"long")
    assert row is not None
    assert row.expire_time == pytest.approx(row.create_time + 3_600, abs=0.001)


async def tell_story(place: Place, watch: Watch, **settings: object) -> None:
    """The whole of it. ``settings`` fix the kind of log at creation; later openings follow the database."""
    expected: dict[bytes, bytes] = {}
    async with place.open(**SMALL, **settings) as db:
        watch.note(db, db.status(), db.metrics())
        await write_concurrently(db, expected)
        async with db.snapshot() as before:
            await write_the_rest(db, expected)
            await asyncio.sleep(0.002)  # the brief one's time is over
            assert await before.get(b"user:00:000") == b"value 0 0"
            assert await before.get(b"long") is None
        await check(db, expected)
        await db.flush(l0=True)
        await check(db, expected)
        await db.put(b"user:00:001", b"newer")  # stays in the log
        expected[b"user:00:001"] = b"newer"
        identity = db.status().database_id
    older = await slate.open(place.path, metastore=place.metastore, settings=slate.Settings(**SMALL), create=False)
    assert older.status().database_id == identity
    await check(older, expected)
    async with place.open(**SMALL) as newer:
        assert newer.status().epoch == older.status().epoch + 1
        expected[b"taken over"] = b"yes"
        await newer.put(b"taken over", b"yes")
        with pytest.raises(slate.FencedError) as fenced:
            await older.put(b"from a zombie", b"no")
        with pytest.raises(slate.FencedError) as closed:
            await older.wait_closed()
        assert older.status().state == "fenced"
        await older.close()
        for error in (fenced.value, closed.value):
            watch.note_error(error)
        watch.note(older, newer, newer.status(), newer.metrics(), *vars(newer).values())
        await check(newer, expected)
    async with place.open(**SMALL) as third:
        await check(third, expected)


def kinds_of_log(name: str, full: bool, seed: int) -> list[dict[str, object]]:
    """All four, or one of each protocol: those of this commit."""
    rng = random.Random(f"{seed} {name}")
    chosen = LOGS if full else [rng.choice(LOGS[:2]), rng.choice(LOGS[2:])]
    return [{"log_protocol": protocol, "wal_enabled": wal} for protocol, wal in chosen]


@pytest.mark.parametrize("name", PLACES)
async def test_the_story_on_every_place(name: str, servers: Servers, watch: Watch, full: bool, slice_seed: int) -> None:
    for kind in kinds_of_log(name, full, slice_seed):
        servers = Servers(servers._request, servers._monkeypatch, servers._folder / str(kind))
        print(kind)
        await tell_story(await PLACES[name](servers), watch, **kind)


# ---- stores that break the promise of conditional writes

BROKEN = [
    pytest.param(None, "contiguous", r"dynamodb://.*epoch_prefixed", id="default"),
    pytest.param("if-match", "contiguous", r"dynamodb://.*epoch_prefixed", id="if-match"),
    pytest.param("if-match", "epoch_prefixed", r"dynamodb://.*epoch_prefixed", id="if-match-epochs"),
    pytest.param("dynamodb", "contiguous", r"epoch_prefixed", id="dynamodb-contiguous"),
]


@pytest.mark.parametrize(("metastore", "protocol", "way_out"), BROKEN)
async def test_a_store_that_ignores_conditions_is_refused_and_then_used_as_advised(
    metastore: str | None, protocol: str, way_out: str, servers: Servers, watch: Watch
) -> None:
    place = await servers.s3rver()
    asked = await servers.with_table(place) if metastore == "dynamodb" else replace(place, metastore=metastore)
    with pytest.raises(slate.InvalidError, match=way_out) as refused:
        await asked.open(**SMALL, log_protocol=protocol)
    watch.note_error(refused.value)
    told = asked if metastore == "dynamodb" else await servers.with_table(place)
    async with told.open(**SMALL, log_protocol="epoch_prefixed") as db:  # the same path: nothing was left behind
        await db.put(b"a", b"1")


async def test_the_story_on_a_store_that_ignores_conditions(servers: Servers, watch: Watch) -> None:
    place = await servers.with_table(await servers.s3rver())
    await tell_story(place, watch, log_protocol="epoch_prefixed")


# ---- further servers


@pytest.mark.parametrize("client", ["obstore", "aiobotocore"])
@pytest.mark.parametrize("store", ["s3", "s3+if-match"])
async def test_the_story_on_localstack(
    store: str, client: str, localstack_endpoint: str, servers: Servers, watch: Watch
) -> None:
    for protocol in ("contiguous", "epoch_prefixed"):
        await tell_story(await servers.s3(store, client, "localstack"), watch, log_protocol=protocol)


async def test_radosgw_creates_but_does_not_replace(radosgw_endpoint: Radosgw, servers: Servers, watch: Watch) -> None:
    """Its If-Match never matches a quoted ETag."""
    refused = [({"metastore": "if-match"}, "contiguous"), ({}, "epoch_prefixed")]
    for changes, protocol in refused:
        place = replace(await servers.radosgw(), **changes)
        with pytest.raises(slate.InvalidError, match=r"replace-if-match.*dynamodb://") as error:
            await place.open(**SMALL, log_protocol=protocol)
        watch.note_error(error.value)
    await tell_story(await servers.radosgw(), watch, log_protocol="contiguous")
    place = await servers.with_table(await servers.radosgw())
    await tell_story(place, watch, log_protocol="epoch_prefixed")
    watch.check(radosgw_endpoint.secret_key)


# ---- errors that a secret could slip into


@pytest.mark.parametrize("client", ["obstore", "aiobotocore"])
async def test_a_missing_bucket(client: str, servers: Servers, watch: Watch) -> None:
    place = await servers.s3(client=client)
    missing = replace(place, path=place.path.replace("s3://b", "s3://nosuch"))
    with pytest.raises(slate.InvalidError, match="bucket") as error:
        await missing.open()
    watch.note_error(error.value)


@pytest.mark.parametrize("client", ["obstore", "aiobotocore"])
@pytest.mark.parametrize("metastore", [None, "dynamodb://table"])
async def test_a_server_that_is_not_there(client: str, metastore: str | None, servers: Servers, watch: Watch) -> None:
    query = url_query("http://127.0.0.1:1")
    place = Place(f"s3://bucket/db{query}&client={client}", None if metastore is None else metastore + query, {})
    with pytest.raises(slate.UnavailableError) as error:
        await place.open(request_timeout_ms=200, retry_deadline_ms=400)
    watch.note_error(error.value)


async def test_a_table_that_is_not_there(servers: Servers, watch: Watch) -> None:
    place = await servers.s3()
    missing = replace(place, metastore=f"dynamodb://nosuchtable{url_query(servers.endpoint('s3'))}")
    with pytest.raises(slate.InvalidError, match="create-table") as error:
        await missing.open()
    watch.note_error(error.value)


async def test_wrong_credentials(servers: Servers, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    place = await servers.azure()
    wrong = base64.b64encode(b"a key that was never this account's").decode()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", wrong)
    with pytest.raises(slate.InvalidError, match="credentials") as error:
        await place.open()
    watch.note_error(error.value)
    watch.check(wrong)


@pytest.mark.parametrize("where", ["path", "metastore"], ids=["in-the-path", "in-the-metastore"])
async def test_a_secret_in_a_url_is_refused_without_repeating_it(where: str, servers: Servers, watch: Watch) -> None:
    place = await servers.s3("s3+dynamodb")
    for bad in (f"&secret_access_key={quote(SECRET, safe='')}", f"&aws_session_token={quote(SECRET, safe='')}"):
        url = getattr(place, where)
        with pytest.raises(slate.InvalidError) as error:
            await replace(place, **{where: url + bad}).open()
        watch.note_error(error.value)
    url = getattr(place, where).replace("://", f"://key:{SECRET.replace('/', '')}@", 1)
    with pytest.raises(slate.InvalidError) as error:
        await replace(place, **{where: url}).open()
    watch.note_error(error.value)
    watch.check(SECRET.replace("/", ""))
