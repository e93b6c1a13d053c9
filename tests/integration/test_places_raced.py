"""Creators and adopters of places race from several processes, each of them killed, or stopped for a while, between any
two of its requests. Metadata is in DynamoDB; the same URL leads to a bucket at either of two servers.

Invariant: then one place is right, every acknowledged row is there, and an opening that is refused has fenced nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import boto3
import pytest

import slate_async as slate
from tests import slices
from tests.integration.places import LOGS, REGION, Place, make_place
from tests.integration.processes import ChildProcess
from tests.netproxy import PASS, CutBefore, DeliverLate, Fault, Request, WireProxy
from tests.servers.moto import LockedMoto

ROUNDS, ALL_ROUNDS = 2, 60
REQUESTS = 70
"""An opening that creates the database makes about so many, and others fewer: some processes are not struck."""
REFUSALS = ("FencedError", "ConflictError", "ConfigError", "WrongPlaceError", "NotFoundError", "UnavailableError")


@pytest.fixture(scope="module")
def other_endpoint() -> Iterator[str]:
    """A second S3 server."""
    server = LockedMoto()
    yield server.url
    server.stop()


@dataclass
class Fate:
    """What becomes of one process at its request number ``at``: a signal, before or after the server gets that."""

    signal: signal.Signals
    at: int
    delivered: bool
    pid: int = 0
    made: int = 0
    struck: bool = False

    def choose(self, request: Request) -> Fault:
        number, self.made = self.made, self.made + 1
        if self.struck:
            return CutBefore() if self.signal is signal.SIGKILL else PASS
        if number != self.at:
            return PASS
        self.struck = True
        if not self.delivered:
            os.kill(self.pid, self.signal)
            return CutBefore()
        if self.signal is signal.SIGSTOP:
            os.kill(self.pid, self.signal)
            return PASS
        asyncio.get_running_loop().call_later(0.02, os.kill, self.pid, self.signal)  # once its request is read
        return DeliverLate(0.0)


@dataclass
class Field:
    """Two places of one database, and a process that forks others. ``endpoints``: of the places; the first one's is
    DynamoDB's, too."""

    places: tuple[Place, Place]
    endpoints: tuple[str, str]
    parent: ChildProcess
    rng: random.Random
    environment: slate.Environment
    names: int = 0

    @asynccontextmanager
    async def racing(self, orders: list[tuple[str, int]]) -> AsyncIterator[None]:
        """Carry out ``orders`` (what, and at which place) at once. The body runs when all have ended but those that are
        stopped; these go on and end after it."""
        start, stopped = len(self.parent.received), list[tuple[str, Fate]]()
        async with AsyncExitStack() as proxies:
            fates = [await self._send(proxies, what, where) for what, where in orders]
            for name, fate in fates:
                if await self._ended_or_stopped(name, fate, start):
                    stopped.append((name, fate))
            yield
            for name, fate in stopped:
                os.kill(fate.pid, signal.SIGCONT)
                await self.parent.wait_for_line(f"ended {name}", start=start, timeout=60)
        for line in self.parent.received[start:]:
            if line.startswith("failed"):
                _, name, kind = line.split()[:3]
                assert kind in REFUSALS or ("adopt" in name and "is missing" in line), line

    async def _send(self, proxies: AsyncExitStack, what: str, where: int) -> tuple[str, Fate]:
        fate = Fate(
            self.rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP)),
            self.rng.randrange(REQUESTS),
            self.rng.random() < 0.5,
        )
        place = self.places[where]
        for endpoint in self.endpoints:
            proxy = await proxies.enter_async_context(WireProxy(endpoint, fate.choose))
            place = place.through(endpoint, proxy.url)
        self.names += 1
        name = f"{self.names:04}-{what}-{where}"
        begun, fate.at, at = len(self.parent.received), -1, fate.at
        order = {"name": name, "what": what, "path": place.path, "metastore": place.metastore}
        await self.parent.send(json.dumps({**order, "settings": place.settings}))
        line = await self.parent.wait_for_line(f"begun {name}", start=begun)
        fate.pid, fate.at = int(line.split()[2]), max(at, fate.made)
        return name, fate

    async def _ended_or_stopped(self, name: str, fate: Fate, start: int) -> bool:
        for _ in range(6_000):
            if f"ended {name}" in self.parent.received[start:]:
                return False
            if fate.struck and fate.signal is signal.SIGSTOP:
                return True
            await asyncio.sleep(0.01)
        raise AssertionError(f"{name} does not end: {fate}\n{self.parent.stderr_tail()}")

    def acknowledged(self) -> set[bytes]:
        return {line.split()[1].encode() for line in self.parent.received if line.startswith("ack ")}

    async def check(self, *, adopted: int | None = None) -> int:
        """Which place is right. After an adoption was broken off none may be, until ``adopted`` is adopted again."""
        if adopted is not None and await self._right() is None:
            there = self.places[adopted]
            async with self.environment.open_admin(there.path, metastore=there.metastore) as admin:
                await admin.adopt_place()
        right = await self._right()
        assert right is not None
        epoch = await self._epoch(right)
        with pytest.raises(slate.ConfigError, match="is not the place"):
            await self.places[1 - right].open(self.environment)
        assert await self._epoch(right) == epoch
        return right

    async def _right(self) -> int | None:
        found = []
        for number, place in enumerate(self.places):
            with contextlib.suppress(slate.ConfigError):
                async with place.open(self.environment) as db:
                    rows = {key async for key, _ in db.scan()}
                assert rows >= self.acknowledged()
                found.append(number)
        assert len(found) < 2
        return found[0] if found else None

    async def _epoch(self, number: int) -> int:
        """The writer's epoch."""
        place = self.places[number]
        async with self.environment.open_reader(place.path, metastore=place.metastore, pin=False) as reader:
            return (await reader.writer_life()).epoch

    def copy(self, source: int, target: int) -> None:
        """All objects of one place into the other one, but for the marker."""
        bucket = self.places[0].path.removeprefix("s3://").partition("/")[0]
        clients = [
            boto3.Session().client("s3", endpoint_url=endpoint, region_name=REGION) for endpoint in self.endpoints
        ]
        for client, keep in ((clients[target], False), (clients[source], True)):
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                for found in page.get("Contents", []):
                    if not keep:
                        client.delete_object(Bucket=bucket, Key=found["Key"])
                    elif not found["Key"].endswith("store/marker"):
                        body = client.get_object(Bucket=bucket, Key=found["Key"])["Body"].read()
                        clients[target].put_object(Bucket=bucket, Key=found["Key"], Body=body)


@asynccontextmanager
async def _field(seed: int, s3_endpoint: str, other_endpoint: str) -> AsyncIterator[Field]:
    rng = random.Random(seed)
    async with ChildProcess(["-m", "tests.integration.forked"]) as parent, slate.Environment() as environment:
        await parent.wait_for_line("ready")
        one, other = await _places(rng, s3_endpoint, other_endpoint)
        yield Field((one, other), (s3_endpoint, other_endpoint), parent, rng, environment)


async def _places(rng: random.Random, s3_endpoint: str, other_endpoint: str) -> tuple[Place, Place]:
    one = await make_place("s3+dynamodb", rng.choice(LOGS), None, s3_endpoint)
    bucket = one.path.removeprefix("s3://").partition("/")[0]
    boto3.Session().client("s3", endpoint_url=other_endpoint, region_name=REGION).create_bucket(Bucket=bucket)
    return one, replace(one.through(s3_endpoint, other_endpoint), metastore=one.metastore)


@pytest.mark.timeout(3_000)
async def test_a_creation_and_an_adoption_at_once(
    full: bool, s3_endpoint: str, other_endpoint: str, aws_environment: dict[str, str]
) -> None:
    seeds = slices.seeds(ALL_ROUNDS if full else ROUNDS)
    async with _field(seeds[0], s3_endpoint, other_endpoint) as field:
        for seed in seeds:
            print(f"seed {seed}")
            field.rng = random.Random(seed)
            field.places = await _places(field.rng, s3_endpoint, other_endpoint)
            field.parent.received.clear()
            await _play(field)


async def _play(field: Field) -> None:
    both = [0, 1]
    async with field.racing([("open", field.rng.choice(both)) for _ in range(3)]):
        right = await field.check()
    assert await field.check() == right

    target = 1 - right
    field.copy(right, target)
    async with field.racing(
        [("adopt", target), ("adopt", target), ("open", target), ("adopt", field.rng.choice(both))]
    ):
        right = await field.check(adopted=target)
    await field.check(adopted=right)
