"""Clients of an etcd of three members, one of which is killed or frozen: the leader, and the endpoint in use."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from urllib.parse import quote

import pytest
import pytest_asyncio

import slate_async as slate
from metastores.etcd_client.access import EtcdAccess
from metastores.etcd_client.client import EtcdClient
from metastores.etcd_client.records import Put
from metastores.factories import parse_metastore
from metastores.runtime import MetaRuntime
from metastores.testing import MemoryObjects
from tests.integration.processes import ChildProcess
from tests.servers.etcd import EtcdCluster, EtcdMember
from tests.servers.install import is_left_out

PATIENCE_S = 60.0
RACERS, ADDITIONS, ALL_ADDITIONS = 3, 25, 1_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EtcdCluster]:
    """Three members."""
    if is_left_out("etcd"):
        pytest.skip("there is no etcd")
    made = EtcdCluster()
    yield made
    made.stop()


@pytest_asyncio.fixture
async def client(cluster: EtcdCluster) -> AsyncIterator[EtcdClient]:
    """A client that gives up on an endpoint after a second."""
    made = EtcdClient(
        EtcdAccess.of(cluster.endpoints, tls=False, environment={}),
        MetaRuntime(request_timeout=1.0, deadline=PATIENCE_S),
    )
    yield made
    await made.close()


async def leader_of(cluster: EtcdCluster, client: EtcdClient) -> EtcdMember:
    """The member that leads now."""
    for member in cluster.members:
        status = await client.status(member.endpoint)
        if status.member == status.leader:
            return member
    raise AssertionError("no member leads")


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_reads_writes_and_watches_go_on_without_the_leader(
    cluster: EtcdCluster, client: EtcdClient, how: str
) -> None:
    """Each event is given, in order, whichever member it comes from."""
    folder = f"watched-{how}/".encode()
    start = (await client.read(folder)).revision + 1
    seen: list[bytes] = []

    async def watch() -> None:
        async for answer in client.watch(folder, start):
            seen.extend(event.entry.value for event in answer.events if event.entry is not None)
            if len(set(seen)) == 40:
                return

    watching = asyncio.create_task(watch())
    leader = None
    for number in range(40):
        if number == 10:
            leader = await leader_of(cluster, client)
            leader.kill() if how == "killed" else leader.pause()
        if number == 30 and leader is not None:
            leader.start() if how == "killed" else leader.resume()
        key = folder + b"%d" % number
        await client.write([Put(key, key)])  # a frozen member may do it a second time, once it thaws
        assert (await client.read(key)).entries[0].value == key
    await asyncio.wait_for(watching, PATIENCE_S)
    assert list(dict.fromkeys(seen)) == [folder + b"%d" % number for number in range(40)]


@pytest.mark.timeout(600)
async def test_racing_processes_lose_no_addition_without_the_leader(
    cluster: EtcdCluster, client: EtcdClient, full: bool
) -> None:
    """Each addition that is reported as committed is in, and none that was in conflict."""
    additions = ALL_ADDITIONS if full else ADDITIONS
    url, name = f"{cluster.url}/raced", f"s3://bucket/{quote('racing')}"
    async with AsyncExitStack() as stack:
        racers = [
            await stack.enter_async_context(
                ChildProcess(["tests/integration/etcd_racer.py", url, name, str(additions)])
            )
            for _ in range(RACERS)
        ]
        struck = None
        async for _ in racers[0].lines():
            count = racers[0].received.count("committed")
            if struck is None and count == additions // 3:
                struck = await leader_of(cluster, client)
                struck.kill()
            if struck is not None and count == 2 * additions // 3:
                struck.start()
                break
        for racer in racers:
            assert await racer.wait() == 0
        outcomes = Counter(line for racer in racers for line in racer.received)
    factory = parse_metastore(url)
    cell = await factory.register(MemoryObjects(), name).read()
    await factory.close()
    assert cell is not None
    assert outcomes["committed"] == RACERS * additions
    assert outcomes["committed"] <= int(cell.value) <= outcomes["committed"] + outcomes["unknown"]


async def test_a_database_whose_metadata_is_in_an_etcd(cluster: EtcdCluster, tmp_path: object) -> None:
    """It is written, fenced, read by a reader, and refused under another prefix."""
    url, metastore = f"{tmp_path}/db", f"{cluster.url}/databases"
    async with slate.open(url, metastore=metastore) as first:
        await first.put(b"a", b"1")
        async with slate.open(url, metastore=metastore) as second:
            await second.put(b"b", b"2")
            with pytest.raises(slate.FencedError):
                await first.put(b"c", b"3")
            await second.flush()
            async with slate.open_reader(url, metastore=metastore) as reader:
                assert await reader.get_many([b"a", b"b", b"c"]) == [b"1", b"2", None]
    with pytest.raises(slate.ConfigError, match="says that it is in etcd://"):
        await slate.open(url, metastore=f"{cluster.url}/other")
