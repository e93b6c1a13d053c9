"""What is an outage, what is a bug, and that no message of either holds a secret of an answer."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from aiohttp import ClientPayloadError
from botocore.exceptions import BotoCoreError, HTTPClientError, NoCredentialsError, ReadTimeoutError

from metastores.bodies import ObjectBodies
from metastores.dynamodb import DynamoDBMetaStore, DynamoRegister
from metastores.dynamodb_table import DynamoTable
from metastores.errors import (
    MetaStoreCorruptionError,
    MetaStoreError,
    MetaStoreInvalidError,
    MetaStoreUnavailableError,
)
from metastores.factories import IfMatchFactory, PutIfAbsentFactory
from metastores.if_match import ObjectRegister
from metastores.object_store_errors import OutcomeUnknownError
from metastores.protocol import Committed, ListedObject, MetaStore, StoredObject, Unknown
from metastores.redaction import MAX_DETAIL_CHARS, redacted
from metastores.runtime import MetaRuntime
from metastores.stats import Counted
from metastores.testing import MemoryObjects
from metastores.testing.metastore_suite import commit, ref
from slate_async import errors as engine
from tests.support.dynamo_fake import FakeDynamo, answered

SECRET = "IQoJb3JpZ2luX2VjEhunter2wRX"
QUOTING = (
    f"the canonical string was 'POST\n/\n\nhost:dynamodb.us-east-1.amazonaws.com\nx-amz-security-token:{SECRET}\n'",
    f"Credential=AKIAIOSFODNN7EXAMPLE/2024, X-Amz-Security-Token: {SECRET}",
    f"could not connect to https://{SECRET}@example.com/?X-Amz-Signature={SECRET}",
    f"AWS4-HMAC-SHA256 Authorization: Bearer {SECRET}",
    f'{{"sessionToken": "{SECRET}", "secret_key": "{SECRET}"}}',
)


class Failing(MemoryObjects):
    """Every request raises ``error``."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def get(self, key: str) -> StoredObject | None:
        raise self.error

    async def put(self, key: str, data: bytes) -> str:
        raise self.error

    async def create(self, key: str, data: bytes) -> str | None:
        raise self.error

    async def replace(self, key: str, data: bytes, etag: str) -> str | None:
        raise self.error

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ListedObject]:
        raise self.error
        yield

    async def delete(self, keys: Sequence[str]) -> None:
        raise self.error


class Marked(Exception):
    """A failure by its attribute."""

    def __init__(self, outcome: str | None) -> None:
        super().__init__("marked")
        self.outcome = outcome


async def no_sleep(seconds: float) -> None:
    return None


RUNTIME = MetaRuntime(sleep=no_sleep)
REQUESTS: dict[str, Callable[[Failing], Awaitable[object]]] = {
    "versions: latest": lambda objects: PutIfAbsentFactory(RUNTIME).manifest(objects, "x").latest(),
    "versions: delete": lambda objects: PutIfAbsentFactory(RUNTIME).manifest(objects, "x").delete([ref(1)]),
    "versions: collect": lambda objects: PutIfAbsentFactory(RUNTIME).manifest(objects, "x").collect([]),
    "pointer: latest": lambda objects: IfMatchFactory(RUNTIME).manifest(objects, "x").latest(),
    "register: read": lambda objects: ObjectRegister(objects, "k", RUNTIME).read(),
    "bodies: put": lambda objects: ObjectBodies(objects).put(ref(1), b""),
    "bodies: get": lambda objects: ObjectBodies(objects).get(ref(1)),
    "bodies: list": lambda objects: ObjectBodies(objects).list(),
    "bodies: delete": lambda objects: ObjectBodies(objects).delete([ref(1)]),
    "bodies: empty?": lambda objects: ObjectBodies(objects).check_empty(),
}
WRITES: dict[str, Callable[[Failing], Awaitable[object]]] = {
    "register: write": lambda objects: ObjectRegister(objects, "k", RUNTIME).compare_and_set(None, b""),
}
BUGS = (TypeError("a bug"), AttributeError("a bug"), KeyError("a bug"), ValueError("a bug"), RuntimeError("a bug"))


@pytest.mark.parametrize("request_name", [*REQUESTS, *WRITES])
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: type(bug).__name__)
async def test_a_bug_passes_through_as_it_is(request_name: str, bug: Exception) -> None:
    with pytest.raises(type(bug)) as caught:
        await {**REQUESTS, **WRITES}[request_name](Failing(bug))
    assert caught.value is bug


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (TimeoutError(), MetaStoreUnavailableError),
        (ConnectionResetError(), MetaStoreUnavailableError),
        (Marked(None), MetaStoreUnavailableError),
        (engine.UnavailableError("x"), MetaStoreUnavailableError),
        (engine.InvalidError("x"), MetaStoreInvalidError),
        (engine.CorruptionError("x", object_name="o"), MetaStoreCorruptionError),
        (MetaStoreInvalidError("x"), MetaStoreInvalidError),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
async def test_a_failed_read_is_reported_by_kind(
    request_name: str, failure: Exception, expected: type[Exception]
) -> None:
    with pytest.raises(expected) as caught:
        await REQUESTS[request_name](Failing(failure))
    assert failure in (caught.value, caught.value.__cause__)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (engine.UnavailableError("no answer from the store"), "no answer from the store"),
        (TimeoutError(), "no answer in time"),
        (ConnectionResetError(), "the connection was lost"),
    ],
)
async def test_a_failure_is_reported_in_words(failure: Exception, words: str) -> None:
    with pytest.raises(MetaStoreUnavailableError) as caught:
        await ObjectBodies(Failing(failure)).list()
    assert str(caught.value) == f"listing the manifest's bodies: {words}"
    outcome = await ObjectRegister(Failing(failure), "k", RUNTIME).compare_and_set(None, b"")
    assert isinstance(outcome, Unknown)
    assert str(outcome.cause).endswith(f": {words}")
    assert "Error" not in str(outcome.cause)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (TimeoutError(), None),
        (ConnectionResetError(), None),
        (Marked("unknown"), None),
        (Marked(None), None),
        (engine.UnavailableError("x", outcome="unknown"), None),
        (engine.UnavailableError("x", outcome="not_applied"), MetaStoreUnavailableError),
        (engine.InvalidError("x", outcome="not_applied"), MetaStoreInvalidError),
        (Marked("not_applied"), MetaStoreUnavailableError),
        (MetaStoreUnavailableError("x"), MetaStoreUnavailableError),
    ],
)
async def test_a_failed_conditional_write_is_unknown_unless_it_says_otherwise(
    failure: Exception, expected: type[Exception] | None
) -> None:
    register = ObjectRegister(Failing(failure), "k", RUNTIME)
    if expected is None:
        assert isinstance(await register.compare_and_set(None, b""), Unknown)
        assert register.stats.unknowns == 1
        return
    with pytest.raises(expected):
        await register.compare_and_set(None, b"")


async def test_a_bug_in_a_commit_is_no_unknown_outcome() -> None:
    for factory in (PutIfAbsentFactory, IfMatchFactory):
        objects = Buggy()
        store: MetaStore = factory(RUNTIME).manifest(objects, "x")
        await commit(store, 1, b"x")
        objects.broken = True
        with pytest.raises(TypeError, match="a bug"):
            await store.commit(ref(2), b"y")


class Buggy(MemoryObjects):
    """Its conditional writes can be broken."""

    broken = False

    async def create(self, key: str, data: bytes) -> str | None:
        if self.broken:
            raise TypeError("a bug")
        return await super().create(key, data)

    async def replace(self, key: str, data: bytes, etag: str) -> str | None:
        if self.broken:
            raise TypeError("a bug")
        return await super().replace(key, data, etag)


def table_of(client: object, deadline: float = 30.0) -> DynamoTable:
    return DynamoTable("table", runtime=MetaRuntime(sleep=no_sleep, deadline=deadline), client=client)


def told(error: BaseException) -> str:
    """All that logs and people may see of it."""
    seen, chain = [error], [error]
    while chain:
        last = chain.pop()
        for below in (last.__cause__, last.__context__):
            if below is not None and below not in seen:
                seen.append(below)
                chain.append(below)
    return "\n".join([*traceback.format_exception(error), *(f"{each!r} {each}" for each in seen)])


CODES = ("InvalidSignatureException", "ExpiredTokenException", "ValidationException", "AccessDeniedException", "Odd")


@pytest.mark.parametrize("quoting", QUOTING)
async def test_an_answer_quoting_a_secret_reaches_no_traceback(quoting: str) -> None:
    for operation, code, status in itertools.product(("get_item", "put_item"), CODES, (400, 403, 500)):
        client = FakeDynamo({})
        client.fail(operation, answered(code, status, quoting), times=100)
        register = DynamoRegister(table_of(client), "s3://b/x")
        work = register.read() if operation == "get_item" else register.compare_and_set(None, b"")
        said = await outcome_of(work)
        assert SECRET not in said
        assert "hunter2" not in said
        assert "AKIAIOSFODNN7EXAMPLE" not in said
        assert "ClientError" in said or "answered 500" in said


class Quoting(BotoCoreError):
    """An error of the SDK before or without an answer."""

    fmt = "{text}"


@pytest.mark.parametrize("quoting", QUOTING)
@pytest.mark.parametrize(
    "make",
    [
        lambda text: Quoting(text=text),
        lambda text: HTTPClientError(error=ValueError(text)),
        lambda text: ReadTimeoutError(endpoint_url=f"http://{SECRET}@x", error=text),
        OSError,
        ClientPayloadError,
    ],
    ids=["sdk", "http", "timeout", "os", "payload"],
)
async def test_an_error_without_an_answer_quoting_a_secret_reaches_no_traceback(
    quoting: str, make: Callable[[str], Exception]
) -> None:
    for operation in ("get_item", "put_item"):
        client = FakeDynamo({})
        error = make(quoting)
        error.__cause__ = ValueError(SECRET)
        client.fail(operation, error, times=100)
        register = DynamoRegister(table_of(client), "s3://b/x")
        said = await outcome_of(register.read() if operation == "get_item" else register.compare_and_set(None, b""))
        assert SECRET not in said
        assert "hunter2" not in said


async def outcome_of(work: Awaitable[object]) -> str:
    """What comes of it, as a user sees it."""
    try:
        return repr(await work)
    except MetaStoreError as error:
        return told(error)


async def test_a_client_that_cannot_be_made_tells_no_secret(aws_environment: dict[str, str]) -> None:
    table = DynamoTable("table", region="us-east-1", endpoint_url=f"nonsense://{SECRET}@x?token={SECRET}")
    with pytest.raises(MetaStoreInvalidError) as caught:
        await table.call("get_item")
    assert SECRET not in told(caught.value)


async def test_a_bug_below_dynamodb_passes_through_and_is_sent_once() -> None:
    for bug in BUGS:
        for operation in ("get_item", "put_item"):
            client = FakeDynamo({})
            client.fail(operation, bug, times=100)
            register = DynamoRegister(table_of(client), "s3://b/x")
            with pytest.raises(type(bug)) as caught:
                await (register.read() if operation == "get_item" else register.compare_and_set(None, b""))
            assert caught.value is bug
            assert client.asked.count(operation) == 1


async def test_what_the_sdk_raises_is_a_failure() -> None:
    client = FakeDynamo({})
    client.fail("put_item", NoCredentialsError())
    with pytest.raises(MetaStoreInvalidError, match="no credentials found"):
        await table_of(client).put_if({"name": {"S": "x"}, "item": {"S": "y"}}, {})
    client.fail("put_item", ClientPayloadError("cut off"))
    with pytest.raises(OutcomeUnknownError):
        await table_of(client).put_if({"name": {"S": "x"}, "item": {"S": "y"}}, {})


def test_redaction_keeps_what_helps() -> None:
    assert redacted("Requested resource not found: Table: slate-1") == "Requested resource not found: Table: slate-1"
    assert redacted("http://localhost:4566/x?y=1 refused") == "http://localhost:4566/x refused"
    assert len(redacted("word " * 1_000)) <= MAX_DETAIL_CHARS


async def test_contention_is_counted_apart() -> None:
    client, objects = FakeDynamo({}), MemoryObjects()
    table = table_of(client)
    store, register = DynamoDBMetaStore(table, "s3://b/x", objects), DynamoRegister(table, "s3://b/x")
    await commit(store, 1, b"x")
    client.fail("put_item", answered("ThrottlingException"), times=2)
    won = await register.compare_and_set(None, b"a")
    assert isinstance(won, Committed)
    client.fail("put_item", ConnectionResetError())
    assert isinstance(await register.compare_and_set(won.value, b"b"), Unknown)
    await register.compare_and_set(f"1.{'0' * 32}.x", b"c")
    client.fail("get_item", ConnectionResetError())
    await register.read()
    assert [getattr(register.stats, name) for name in ("commits", "conflicts", "unknowns")] == [1, 1, 1]
    assert (register.stats.throttles, register.stats.retries) == (2, 3)
    assert (store.stats.commits, store.stats.throttles, store.stats.retries) == (1, 0, 0)
    client.fail("put_item", answered("ThrottlingException"))
    await store.commit(ref(2), b"y")
    await store.commit(ref(2), b"z")
    assert (store.stats.commits, store.stats.conflicts, store.stats.throttles, store.stats.retries) == (2, 1, 1, 1)


@pytest.mark.parametrize("factory", [PutIfAbsentFactory, IfMatchFactory])
async def test_outcomes_over_objects_are_counted(factory: type[PutIfAbsentFactory | IfMatchFactory]) -> None:
    objects = MemoryObjects()
    store = factory(RUNTIME).manifest(objects, "x")
    await commit(store, 1, b"x")
    await commit(factory(RUNTIME).manifest(objects, "x"), 2, b"y")
    await store.commit(ref(2), b"z")
    assert isinstance(store, Counted)
    assert (store.stats.commits, store.stats.conflicts, store.stats.unknowns) == (1, 1, 0)
