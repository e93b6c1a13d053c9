"""DynamoDB: what each error means for a write, regions, large bodies, and that a request is sent once.

No emulator has global tables, throttling or lost answers: those are modelled by `dynamo_fake.FakeDynamo`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from botocore.exceptions import CredentialRetrievalError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError

from metastores import names
from metastores.dynamodb import DynamoDBMetaStore, DynamoRegister, create_table
from metastores.dynamodb_errors import translate
from metastores.dynamodb_kind import TableKind
from metastores.dynamodb_table import ATTEMPTS, DynamoTable
from metastores.errors import MetaStoreCorruptionError, MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.factories import DynamoDBFactory
from metastores.object_store_errors import OutcomeUnknownError
from metastores.protocol import Committed, Conflict, Unknown
from metastores.put_if_absent import PutIfAbsentMetaStore
from metastores.runtime import MetaRuntime
from metastores.testing import MemoryObjects
from metastores.testing.metastore_suite import commit, ref
from tests.support.dynamo_fake import FakeDynamo, answered

NAME = "s3://bucket/db"
STRONG = {"Replicas": [{"RegionName": "eu-west-1"}], "MultiRegionConsistency": "STRONG"}
TIMEOUT = ReadTimeoutError(endpoint_url="http://x")
THROTTLED = (
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
)


class Pauses:
    """A sleep that only counts."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def table_of(client: FakeDynamo, pauses: Pauses | None = None, table: str = "table") -> DynamoTable:
    runtime = MetaRuntime(sleep=Pauses() if pauses is None else pauses)
    return DynamoTable(table, runtime=runtime, client=client)


def store_of(client: FakeDynamo, objects: MemoryObjects | None = None, table: str = "table") -> DynamoDBMetaStore:
    return DynamoDBMetaStore(table_of(client, table=table), NAME, objects or MemoryObjects())


@pytest.mark.parametrize("code", THROTTLED)
async def test_throttled_writes_are_sent_again(code: str) -> None:
    client, pauses = FakeDynamo({}), Pauses()
    register = DynamoRegister(table_of(client, pauses), NAME)
    client.fail("put_item", answered(code), times=3)
    assert isinstance(await register.compare_and_set(None, b"x"), Committed)
    assert client.asked.count("put_item") == 4
    assert len(pauses.slept) == 3
    assert 0 < min(pauses.slept) <= max(pauses.slept) <= 2.0


async def test_endless_throttling_is_unavailable_and_certainly_not_applied() -> None:
    client = FakeDynamo({})
    register = DynamoRegister(table_of(client), NAME)
    client.fail("put_item", answered(THROTTLED[0]), times=100)
    with pytest.raises(MetaStoreUnavailableError, match="throttled"):
        await register.compare_and_set(None, b"x")
    assert client.asked.count("put_item") == ATTEMPTS
    assert client.items == {}


@pytest.mark.parametrize("error", [TIMEOUT, answered("InternalServerError", 500), ConnectionResetError()])
@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_is_read_back_and_never_sent_again(error: Exception, applied: bool) -> None:
    client = FakeDynamo({})
    register = DynamoRegister(table_of(client), NAME)
    client.fail("put_item", error, applied=applied)
    outcome = await register.compare_and_set(None, b"x")
    assert isinstance(outcome, Committed if applied else Unknown)
    assert client.asked.count("put_item") == 1


async def test_a_refused_condition_is_read_back() -> None:
    client = FakeDynamo({})
    first, second = (DynamoRegister(table_of(client), NAME) for _ in range(2))
    won = await first.compare_and_set(None, b"first")
    assert isinstance(won, Committed)
    lost = await second.compare_and_set(None, b"second")
    assert isinstance(lost, Conflict)
    assert lost.current == await first.read()


async def test_reads_are_repeated_and_bounded() -> None:
    client = FakeDynamo({})
    register = DynamoRegister(table_of(client), NAME)
    client.fail("get_item", TIMEOUT, times=ATTEMPTS - 1)
    assert await register.read() is None
    client.fail("get_item", answered(THROTTLED[0]), times=100)
    with pytest.raises(MetaStoreUnavailableError):
        await register.read()


async def test_a_missing_table_names_the_command() -> None:
    client = FakeDynamo({})
    for operation in ("get_item", "describe_table"):
        client.fail(operation, answered("ResourceNotFoundException"))
    register = DynamoRegister(table_of(client), NAME)
    for work in (register.read(), register.compare_and_set(None, b"x")):
        with pytest.raises(MetaStoreInvalidError, match="slate admin create-table"):
            await work


async def test_credentials_never_reach_a_message() -> None:
    client = FakeDynamo({})
    register = DynamoRegister(table_of(client), NAME)
    for code in ("InvalidSignatureException", "UnrecognizedClientException", "InvalidClientTokenId"):
        client.fail("get_item", answered(code, 400, "signed x-amz-security-token:hunter2" if code[0] != "U" else "no"))
        with pytest.raises(MetaStoreInvalidError) as caught:
            await register.read()
        assert "hunter2" not in str(caught.value)
    client.fail("get_item", NoCredentialsError())
    with pytest.raises(MetaStoreInvalidError, match="no credentials found"):
        await register.read()


REFUSED_FOR_CREDENTIALS = (
    answered("UnrecognizedClientException", 400, "The security token included in the request is invalid."),
    answered("InvalidSignatureException", 400, "The request signature we calculated does not match"),
    answered("AccessDeniedException", 400, "User: me is not authorized to perform: dynamodb:GetItem"),
    answered("403", 403, "<?xml version='1.0'?><E><Code>InvalidClientTokenId</Code><Message>bad</Message></E>"),
    answered("403", 403, "<html>Forbidden</html>"),
)


@pytest.mark.parametrize("error", REFUSED_FOR_CREDENTIALS, ids=str)
def test_credentials_that_are_refused_say_what_to_check(error: Exception) -> None:
    said = str(translate(error, "t"))
    assert said.endswith("; check the credentials and what they are allowed")
    assert "<" not in said


def test_a_refusal_in_xml_is_named_by_its_code() -> None:
    assert "refused the request: InvalidClientTokenId;" in str(translate(REFUSED_FOR_CREDENTIALS[3], "t"))
    assert "refused the request: ValidationException: no" in str(
        translate(answered("400", 400, "<E><Code>ValidationException</Code><Message>no</Message></E>"), "t")
    )
    assert not str(translate(answered("ValidationException", 400, "no"), "t")).endswith("allowed")


async def test_a_table_with_other_keys_is_refused() -> None:
    client = FakeDynamo({}, description={"KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}]})
    with pytest.raises(MetaStoreInvalidError, match="other keys"):
        await DynamoRegister(table_of(client), NAME).compare_and_set(None, b"x")


async def test_a_strong_global_table_is_written_from_anywhere() -> None:
    items: dict[tuple[str, str], Any] = {}
    objects = MemoryObjects()
    first = store_of(FakeDynamo(items, "us-east-1", STRONG), objects)
    second = store_of(FakeDynamo(items, "eu-west-1", STRONG), objects)
    await commit(first, 1, b"x")
    await commit(second, 2, b"y")
    assert await first.latest() is not None
    await commit(first, 3, b"z")
    assert [item["home_region"]["S"] for (_, key), item in items.items() if key == "head"] == ["us-east-1"]


async def test_large_bodies_are_objects_stored_before_their_item() -> None:
    client, objects = FakeDynamo({}), MemoryObjects()
    store = store_of(client, objects)
    small, large = await commit(store, 1, b"x" * 8_000), await commit(store, 2, b"x" * 8_193)
    assert names.MANIFEST.body_key(small) not in objects.objects
    assert names.MANIFEST.body_key(large) in objects.objects
    assert max(len(item.get("value", {}).get("B", b"")) for item in client.items.values()) < 8_192
    await commit(store, 3, b"z")
    client.fail("put_item", answered("AccessDeniedException"))
    orphan = ref(4)
    with pytest.raises(MetaStoreInvalidError):
        await store.commit(orphan, b"x" * 10_000)
    assert names.MANIFEST.body_key(orphan) in objects.objects
    await commit(store, 4, b"z")
    assert await store.collect([]) == 4
    assert list(objects.objects) == [names.MANIFEST.elsewhere]


async def test_the_folder_of_a_database_in_dynamodb_is_not_taken_for_empty() -> None:
    objects = MemoryObjects()
    await commit(store_of(FakeDynamo({}), objects), 1, b"x")
    with pytest.raises(MetaStoreInvalidError, match="another metastore"):
        await PutIfAbsentMetaStore(objects).latest()
    await commit(PutIfAbsentMetaStore(other := MemoryObjects()), 1, b"x")
    with pytest.raises(MetaStoreInvalidError, match="another metastore"):
        await store_of(FakeDynamo({}), other).latest()


@pytest.mark.parametrize(("table", "region"), [("other", "us-east-1"), ("table", "eu-west-1")])
async def test_a_database_is_not_recreated_in_another_table_or_region(table: str, region: str) -> None:
    objects = MemoryObjects()
    await commit(store_of(FakeDynamo({}), objects), 1, b"x")
    assert objects.objects[names.MANIFEST.elsewhere] == b"dynamodb://table?region=us-east-1\n"
    with pytest.raises(MetaStoreInvalidError) as caught:
        await store_of(FakeDynamo({}, region), objects, table).latest()
    assert f"dynamodb://{table}?region={region}" in str(caught.value)
    assert "dynamodb://table?region=us-east-1" in str(caught.value)


async def test_a_creation_that_left_only_its_note_is_repeated() -> None:
    client, objects = FakeDynamo({}), MemoryObjects()
    client.fail("put_item", answered("AccessDeniedException"))
    with pytest.raises(MetaStoreInvalidError):
        await store_of(client, objects).commit(ref(1), b"x")
    assert list(objects.objects) == [names.MANIFEST.elsewhere]
    again = store_of(client, objects)
    assert await again.latest() is None
    await commit(again, 1, b"x")


@pytest.mark.parametrize("note", [b"", b"\xff", b"dynamodb://table\n", b"dynamodb://u:p@table?region=x\n"])
async def test_a_note_that_cannot_be_read_is_corrupt(note: bytes) -> None:
    objects = MemoryObjects()
    await objects.put(names.MANIFEST.elsewhere, note)
    with pytest.raises(MetaStoreCorruptionError, match=names.MANIFEST.elsewhere):
        await store_of(FakeDynamo({}), objects).latest()


async def test_no_table_of_an_impossible_name_is_asked_for() -> None:
    with pytest.raises(MetaStoreInvalidError, match="3 to 255 letters"):
        await DynamoDBMetaStore.create_table("bad name!", region="us-east-1", endpoint_url="http://127.0.0.1:1")


async def test_create_table_twice_and_with_capacity(s3_endpoint: str, aws_environment: dict[str, str]) -> None:
    where = {"region": "us-east-1", "endpoint_url": s3_endpoint}
    assert await DynamoDBMetaStore.create_table("twice", **where) is True
    assert await DynamoDBMetaStore.create_table("twice", **where) is False
    assert await DynamoDBMetaStore.create_table("provisioned", provisioned=(5, 6), **where) is True
    table = DynamoTable("provisioned", **where)
    description = (await table.call("describe_table", TableName="provisioned"))["Table"]
    assert description["ProvisionedThroughput"]["WriteCapacityUnits"] == 6
    assert await table.kind() is TableKind.SINGLE
    await table.close()
    absent = DynamoDBFactory("absent", **where)
    with pytest.raises(MetaStoreInvalidError, match="create-table"):
        await absent.manifest(MemoryObjects(), NAME).latest()
    await absent.close()


async def test_create_table_waits_until_it_is_active() -> None:
    client, pauses = FakeDynamo({}, description={"TableStatus": "CREATING"}), Pauses()

    async def create(**_: object) -> dict[str, object]:
        return {}

    client.create_table = create  # type: ignore[attr-defined]
    with pytest.raises(MetaStoreUnavailableError, match="active"):
        await create_table(table_of(client, pauses), None)
    assert pauses.slept


class DroppingServer:
    """Accepts HTTP requests, counts them and drops the connection, after answering the first ``answers`` of them."""

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.requests: list[bytes] = []

    async def __aenter__(self) -> str:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = [line.split(b":", 1) for line in head.lower().split(b"\r\n")[1:] if b":" in line]
                await reader.readexactly(int(dict(lines)[b"content-length"]))
                self.requests.append(dict(lines)[b"x-amz-target"].strip())
                if len(self.requests) > self.answers:
                    return
                body = b"{}"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


@pytest.mark.parametrize("answers", [0, 1], ids=["new connection", "kept connection"])
async def test_a_conditional_write_is_sent_once_over_a_dropping_connection(
    answers: int, aws_environment: dict[str, str]
) -> None:
    server = DroppingServer(answers)
    async with server as url:
        table = DynamoTable("table", region="us-east-1", endpoint_url=url)
        for _ in range(answers):
            await table.call("get_item", TableName="table", Key={"name": {"S": "x"}, "item": {"S": "y"}})
        with pytest.raises(OutcomeUnknownError):
            await table.put_if({"name": {"S": "x"}, "item": {"S": "y"}}, {})
        await table.close()
    assert server.requests.count(b"dynamodb_20120810.putitem") == 1


async def test_a_connection_never_made_is_certainly_not_applied(aws_environment: dict[str, str]) -> None:
    async with DroppingServer(0) as url:
        pass
    pauses = Pauses()
    table = DynamoTable("table", region="us-east-1", endpoint_url=url, runtime=MetaRuntime(sleep=pauses))
    with pytest.raises(MetaStoreUnavailableError):
        await table.put_if({"name": {"S": "x"}, "item": {"S": "y"}}, {})
    assert len(pauses.slept) == ATTEMPTS - 1
    await table.close()


class SilentDynamo:
    """Answers nothing to the first ``silences`` requests."""

    def __init__(self, silences: int) -> None:
        self.silences = silences

    async def get_item(self, **_: object) -> dict[str, object]:
        self.silences -= 1
        if self.silences >= 0:
            await asyncio.Event().wait()
        return {}

    put_item = get_item


@pytest.mark.parametrize(("silences", "deadline", "answered"), [(2, 60.0, True), (1_000_000, 0.05, False)])
async def test_a_silent_request_is_given_up_and_a_silent_table_too(
    silences: int, deadline: float, answered: bool
) -> None:
    runtime = MetaRuntime(sleep=Pauses(), request_timeout=0.01, deadline=deadline)
    table = DynamoTable("table", runtime=runtime, client=SilentDynamo(silences))
    if answered:
        assert await table.call("get_item") == {}
    else:
        with pytest.raises(MetaStoreUnavailableError, match=r"within 0\.05 s|TimeoutError"):
            await table.call("get_item")


async def test_a_silent_conditional_write_is_sent_once_and_its_outcome_unknown() -> None:
    client = SilentDynamo(1)
    table = DynamoTable("table", runtime=MetaRuntime(sleep=Pauses(), request_timeout=0.01), client=client)
    with pytest.raises(OutcomeUnknownError):
        await table.put_if({}, {})
    assert client.silences == 0


def test_a_connection_error_of_unknown_cause_is_unknown() -> None:
    error = EndpointConnectionError(endpoint_url="http://x", error=ConnectionResetError())
    assert isinstance(translate(error, "t"), OutcomeUnknownError)


EXPIRED = (
    answered("ExpiredTokenException", message="The security token included in the request is expired"),
    answered("RequestExpired"),
    answered("InvalidSignatureException", message="Signature expired: 20260101T000000Z is now earlier than"),
    RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."),
    CredentialRetrievalError(provider="process", error_msg="the helper failed"),
)


@pytest.mark.parametrize("error", EXPIRED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("operation", ["get_item", "put_item"])
async def test_expired_credentials_are_waited_out(error: Exception, operation: str) -> None:
    client, pauses = FakeDynamo({}), Pauses()
    register = DynamoRegister(table_of(client, pauses), NAME)
    client.fail(operation, error, times=3)
    assert isinstance(await register.compare_and_set(None, b"x"), Committed)
    assert len(pauses.slept) == 3
    assert register.stats.throttles == 0
    client.fail("put_item", error, times=100)
    won = await register.read()
    assert won is not None
    with pytest.raises(MetaStoreUnavailableError):
        await register.compare_and_set(won.tag, b"y")
    assert await register.read() == won


async def test_a_write_conflict_between_regions_is_sent_again_and_counted_apart() -> None:
    client = FakeDynamo({})
    register = DynamoRegister(table_of(client), NAME)
    client.fail("put_item", answered("ReplicatedWriteConflictException"), times=3)
    assert isinstance(await register.compare_and_set(None, b"x"), Committed)
    assert (register.stats.write_conflicts, register.stats.throttles, register.stats.retries) == (3, 0, 3)


async def test_a_table_just_created_may_be_unknown_for_a_while() -> None:
    client = FakeDynamo({})

    async def create(**_: object) -> dict[str, object]:
        return {}

    client.create_table = create  # type: ignore[attr-defined]
    client.fail("describe_table", answered("ResourceNotFoundException"), times=5)
    assert await create_table(table_of(client), None) is True
    client.fail("describe_table", answered("AccessDeniedException"))
    with pytest.raises(MetaStoreInvalidError, match="AccessDenied"):
        await create_table(table_of(client), None)


async def test_deletes_go_on_while_they_get_something_done() -> None:
    client = FakeDynamo({})
    store = store_of(client)
    for version in range(1, 22):
        await commit(store, version, b"x")
    assert await store.collect([]) == 20
    assert client.asked.count("batch_write_item") == 20 > ATTEMPTS
    assert sum(item.startswith("body#") for _, item in client.items) == 1


async def test_deletes_that_get_nothing_done_are_given_up() -> None:
    client = FakeDynamo({})
    store = store_of(client)
    for version in (1, 2):
        await commit(store, version, b"x")

    async def idle(*, RequestItems: dict[str, Any]) -> dict[str, Any]:
        client.asked.append("batch_write_item")
        return {"UnprocessedItems": RequestItems}

    client.batch_write_item = idle  # type: ignore[method-assign]
    with pytest.raises(MetaStoreUnavailableError, match="unprocessed"):
        await store.collect([])
    assert client.asked.count("batch_write_item") == ATTEMPTS


async def test_a_request_in_back_off_does_not_outlive_its_client() -> None:
    client = FakeDynamo({})
    client.fail("get_item", answered(THROTTLED[0]), times=100)

    async def closing(seconds: float) -> None:
        await table.close()

    table = DynamoTable("table", runtime=MetaRuntime(sleep=closing), client=client)
    with pytest.raises(MetaStoreInvalidError, match="closed"):
        await DynamoRegister(table, NAME).read()
    assert client.asked.count("get_item") == 1
    assert table._client is None
