"""The probe accepts honest stores, names what is broken in others, and does not blame silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from slate_async.errors import InvalidError, UnavailableError
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.probe import probe
from slate_async.objectstore.protocol import OVERWRITE, Create, Match, ObjectChangedError, Overwrite, PutMode
from slate_async.objectstore.url import open_store
from slate_async.runtime.system import SystemClock, SystemIds, system_runtime
from slate_async.types import Buffer
from tests.servers.node import S3RVER_KEY

IDS = SystemIds()


class OddStore(MemoryStore):
    """Breaks one promise, named by ``fault``; ``left`` bounds how often."""

    def __init__(self, fault: str, left: int = 1_000_000) -> None:
        super().__init__(SystemClock())
        self.fault = fault
        self.left = left

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        if not isinstance(mode, Overwrite) and self.left:
            self.left -= 1
            if self.fault == "ignores conditions":
                mode = OVERWRITE
            if self.fault == "ignores match" and isinstance(mode, Match):
                mode = OVERWRITE
            if self.fault == "match never matches" and isinstance(mode, Match):
                raise ObjectChangedError(key)
            if self.fault == "not implemented":
                raise InvalidError("501 NotImplemented", outcome="not_applied")
            if self.fault == "another request in the way":
                raise UnavailableError("409", outcome="not_applied")
            if self.fault == "lost answers":
                await super().put(key, data, mode=mode, metadata=metadata)
                raise UnavailableError("dropped", outcome="unknown")
            if self.fault == "says exists, writes nothing" and isinstance(mode, Create):
                return '"nothing"'
        return await super().put(key, data, mode=mode, metadata=metadata)


@pytest.mark.parametrize(("create", "replace"), [(True, True), (True, False), (False, True), (False, False)])
async def test_an_honest_store_passes_and_is_left_clean(create: bool, replace: bool) -> None:
    store = MemoryStore(SystemClock())
    await probe(store, need_create=create, need_replace=replace, ids=IDS)
    assert [info async for info in store.list()] == []


@pytest.mark.parametrize(
    ("fault", "create", "replace", "says"),
    [
        ("ignores conditions", True, False, "epoch_prefixed"),
        ("ignores conditions", False, True, "dynamodb://"),
        ("ignores match", True, True, "replace-if-match puts succeeded.*dynamodb://"),
        ("match never matches", False, True, "no replace-if-match put succeeds"),
        ("not implemented", True, False, "refuses create-if-absent.*501.*epoch_prefixed"),
        ("says exists, writes nothing", True, False, "epoch_prefixed"),
    ],
)
async def test_broken_stores_are_refused(fault: str, create: bool, replace: bool, says: str) -> None:
    store = OddStore(fault)
    with pytest.raises(InvalidError, match=says):
        await probe(store, need_create=create, need_replace=replace, ids=IDS)
    assert [info async for info in store.list()] == []


@pytest.mark.parametrize("fault", ["ignores match", "match never matches"])
async def test_what_is_not_needed_may_be_broken(fault: str) -> None:
    await probe(OddStore(fault), need_create=True, need_replace=False, ids=IDS)


@pytest.mark.parametrize("fault", ["another request in the way", "lost answers"])
async def test_silence_is_not_a_verdict(fault: str) -> None:
    with pytest.raises(UnavailableError):
        await probe(OddStore(fault), need_create=True, need_replace=True, ids=IDS)


async def test_requests_in_the_way_of_each_other_are_tried_again() -> None:
    await probe(OddStore("another request in the way", left=3), need_create=True, need_replace=True, ids=IDS)


@pytest.mark.parametrize("left", range(1, 9))
async def test_lost_answers_are_no_verdict_when_the_next_ones_arrive(left: int) -> None:
    store = OddStore("lost answers", left=left)
    await probe(store, need_create=True, need_replace=True, ids=IDS)
    assert [info async for info in store.list()] == []


@pytest.mark.parametrize("client", ["obstore", "aiobotocore"])
async def test_a_server_that_ignores_conditions_is_refused(
    client: str, s3rver_endpoint: str, aws_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiobotocore.session import AioSession

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3RVER_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3RVER_KEY)
    bucket = f"probe-{client}"
    async with AioSession().create_client("s3", endpoint_url=s3rver_endpoint, region_name="us-east-1") as sdk:
        await sdk.create_bucket(Bucket=bucket)
    url = f"s3://{bucket}?endpoint_url={s3rver_endpoint}&region=us-east-1&client={client}"
    store, _ = open_store(url, system_runtime())
    with pytest.raises(InvalidError, match=r"racing create-if-absent puts succeeded.*epoch_prefixed"):
        await probe(store, need_create=True, need_replace=False, ids=IDS)
    with pytest.raises(InvalidError, match=r"replace-if-match.*dynamodb://"):
        await probe(store, need_create=False, need_replace=True, ids=IDS)
    await store.close()
