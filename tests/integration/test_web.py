"""The web example under uvicorn: many clients and watchers, while the service is ended, killed, and its store stands
still. Counters are exact, nothing acknowledged is lost, and each watcher sees each change once, in order."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.integration.places import make_place
from tests.integration.processes import ChildProcess
from tests.integration.web_clients import AWAY, Client, Known, Watcher, judge
from tests.servers.moto import LockedMoto
from tests.servers.process import free_port

SCRIPT = "docs/examples/web/serve.py"
CLIENTS = 200
WATCHERS = 20
START_S = 60.0

Blow = Callable[["Service"], Awaitable[None]]


class Service:
    """The example in a process of its own, one after another, always at the same address."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._arguments = [SCRIPT, "--port", str(port), *arguments]
        self._environment = environment
        self._stack = AsyncExitStack()
        self.child: ChildProcess

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        self.child = await self._stack.enter_async_context(ChildProcess(self._arguments, self._environment))
        deadline = time.monotonic() + START_S
        async with aiohttp.ClientSession() as http:
            while time.monotonic() < deadline and self.child.returncode is None:
                try:
                    async with http.get(f"{self.url}/health") as response:
                        assert response.status == 200
                        return
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)
        raise AssertionError(f"the service does not start:\n{self.child.stderr_tail()}")

    async def end(self) -> None:
        """SIGTERM, and the proof that it was a clean end: nobody was cut off, and the database is closed."""
        self.child.terminate()
        status = await self.child.wait(timeout=40)
        said = self.child.stderr_tail()
        assert status == -signal.SIGTERM, (status, said)
        assert "Application shutdown complete" in said
        assert "Traceback" not in said, said
        assert "graceful shutdown exceeded" not in said, said

    async def close(self) -> None:
        """It and all before it."""
        await self._stack.aclose()


@asynccontextmanager
async def served(*arguments: str, **environment: str) -> AsyncIterator[Service]:
    """The service, started."""
    service = Service(list(arguments), environment)
    try:
        await service.start()
        yield service
    finally:
        await service.close()


# ---- what it promises


class User:
    """Somebody with a session."""

    def __init__(self, service: Service, http: aiohttp.ClientSession) -> None:
        self.service = service
        self._http = http
        self.token = ""

    async def sign_in(self, name: str) -> None:
        status, body, _ = await self.ask("POST", "/sessions", {"user": name})
        assert status == 201
        self.token = body["token"]

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, str | None]:
        """Status, body and ETag."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            named["Authorization"] = f"Bearer {self.token}"
        async with self._http.request(method, self.service.url + path, json=body, headers=named) as response:
            is_json = response.content_type == "application/json" and response.status != 304
            return response.status, await response.json() if is_json else None, response.headers.get("ETag")


@asynccontextmanager
async def signed_in(service: Service, name: str = "ann") -> AsyncIterator[User]:
    async with aiohttp.ClientSession() as http:
        user = User(service, http)
        await user.sign_in(name)
        yield user


async def check_products(user: User) -> None:
    lamp = {"sku": "lamp", "name": "Lamp", "cents": 5}
    status, body, tag = await user.ask("POST", "/products", lamp)
    assert (status, body) == (201, {"name": "Lamp", "cents": 5})
    assert tag is not None
    assert (await user.ask("POST", "/products", lamp))[0] == 409
    assert await user.ask("GET", "/products/lamp") == (200, body, tag)
    assert await user.ask("GET", "/products/lamp", If_None_Match=tag) == (304, None, tag)
    assert (await user.ask("GET", "/products/other"))[0] == 404
    dearer = {"name": "Lamp", "cents": 6}
    assert (await user.ask("PUT", "/products/lamp", dearer))[0] == 428
    status, body, newer = await user.ask("PUT", "/products/lamp", dearer, If_Match=tag)
    assert (status, body) == (200, dearer)
    assert newer not in (None, tag)
    for method, body in (("PUT", {"name": "Lamp", "cents": 7}), ("DELETE", None)):
        assert (await user.ask(method, "/products/lamp", body, If_Match=tag))[0] == 412
        assert (await user.ask(method, "/products/other", body, If_Match="*"))[0] == 404
    assert await user.ask("GET", "/products/lamp", If_None_Match=tag) == (200, dearer, newer)
    assert (await user.ask("PUT", "/products/lamp", {"name": "Lamp", "cents": -1}, If_Match="*"))[0] == 422
    assert (await user.ask("DELETE", "/products/lamp", If_Match=f"{tag}, {newer}"))[0] == 204
    assert (await user.ask("GET", "/products/lamp"))[0] == 404
    assert (await user.ask("POST", "/products", lamp))[2] not in (tag, newer)


async def check_pages(user: User) -> None:
    for number in range(0, 20, 2):
        await user.ask("POST", "/products", {"sku": f"p{number:02}", "name": "P", "cents": number})
    _, body, _ = await user.ask("GET", "/products?limit=6")
    skus = [item["sku"] for item in body["items"]]
    for number in (1, 13):  # one behind the cursor, one before it
        await user.ask("POST", "/products", {"sku": f"p{number:02}", "name": "P", "cents": number})
    await user.ask("DELETE", f"/products/{skus[-1]}", If_Match="*")  # which the cursor names
    while body["next"] is not None:
        _, body, _ = await user.ask("GET", f"/products?limit=6&after={body['next']}")
        skus += [item["sku"] for item in body["items"]]
    assert skus == ["lamp", *(f"p{number:02}" for number in (0, 2, 4, 6, 8, 10, 12, 13, 14, 16, 18))]
    for wrong in ("after=nonsense", "limit=0", "limit=1000"):
        assert (await user.ask("GET", f"/products?{wrong}"))[0] in (400, 422)


async def check_counters(user: User) -> None:
    for key, value in (("a", 1), ("b", 2), ("a", 1), ("b", 2), ("c", 3)):
        assert await user.ask("POST", "/counters/n", {}, Idempotency_Key=key) == (200, {"value": value}, None)
    for path, body in (("/counters/n", {"by": 2}), ("/counters/other", {})):
        assert (await user.ask("POST", path, body, Idempotency_Key="a"))[0] == 422
    assert (await user.ask("POST", "/counters/n", {}))[0] == 422
    async with signed_in(user.service, "bob") as other:
        assert await other.ask("POST", "/counters/n", {}, Idempotency_Key="a") == (200, {"value": 4}, None)
    assert await user.ask("GET", "/counters/n") == (200, {"value": 4}, None)
    assert await user.ask("GET", "/counters/other") == (200, {"value": 0}, None)


async def check_sessions(user: User, seconds: float) -> None:
    async with signed_in(user.service, "idle") as idle, signed_in(user.service, "left") as left:
        assert (await left.ask("DELETE", "/sessions/me"))[0] == 204
        assert (await left.ask("GET", "/sessions/me"))[0] == 401
        for _ in range(4):
            await asyncio.sleep(seconds / 3)
            assert await user.ask("GET", "/sessions/me") == (200, {"user": "ann"}, None)
        assert (await idle.ask("GET", "/sessions/me"))[0] == 401
        assert (await idle.ask("POST", "/counters/n", {}, Idempotency_Key="z"))[0] == 401
    user.token, token = "guessed", user.token
    assert (await user.ask("GET", "/sessions/me"))[0] == 401
    user.token = token


async def test_each_answer_is_as_promised_also_after_a_restart(tmp_path: Path) -> None:
    seconds = 3.0
    place = ("--url", str(tmp_path / "shop"), "--session-seconds", str(seconds))
    async with served(*place) as service, signed_in(service) as user:
        await check_products(user)
        await check_pages(user)
        await check_counters(user)
        await check_sessions(user, seconds)
        known = Known()
        async with aiohttp.ClientSession() as http:
            watchers = [Watcher(service.url, http, known), Watcher(service.url, http, known)]
            for watcher in watchers:
                watcher.seen = {"n": []}
            tasks = [asyncio.create_task(watcher.run()) for watcher in watchers[:1]]
            async with asyncio.timeout(30):
                await watchers[0].until({"n": 4})
            await service.end()  # with a feed that is open
            await service.start()
            await user.sign_in("ann")
            assert await user.ask("POST", "/counters/n", {}, Idempotency_Key="a") == (200, {"value": 1}, None)
            assert await user.ask("POST", "/counters/n", {}, Idempotency_Key="d") == (200, {"value": 5}, None)
            tasks.append(asyncio.create_task(watchers[1].run()))  # from the beginning
            async with asyncio.timeout(30):
                await asyncio.gather(*(watcher.until({"n": 5}) for watcher in watchers))
            assert [watcher.seen["n"] for watcher in watchers] == [[1, 2, 3, 4, 5]] * 2
            async with http.get(f"{service.url}/events", headers={"Last-Event-ID": "many"}) as response:
                assert response.status == 422
            for task in tasks:
                task.cancel()
        async with served(*place) as other, signed_in(other) as their:  # which takes the database over
            assert await their.ask("POST", "/counters/n", {}, Idempotency_Key="e") == (200, {"value": 6}, None)
            await refused_until_it_ends(user)
            assert await service.child.wait() == 0
            assert "Traceback" not in service.child.stderr_tail()
            assert await their.ask("GET", "/counters/n") == (200, {"value": 6}, None)


async def refused_until_it_ends(user: User) -> None:
    """The service learns that it has no database any more."""
    async with asyncio.timeout(30):
        while True:
            try:
                status, _, _ = await user.ask("POST", "/sessions", {"user": "ann"})
            except aiohttp.ClientConnectionError:
                return
            assert status == 503


# ---- under load


async def run_clients(service: Service, seed: int, blows: list[Blow], calm_s: float) -> Known:
    """Everything at once, and the judgement."""
    known, rng = Known(), random.Random(seed)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        watchers = [Watcher(service.url, http, known) for _ in range(WATCHERS)]
        watching = [asyncio.create_task(watcher.run()) for watcher in watchers]
        clients = [asyncio.create_task(Client(n, service.url, http, known, seed).run()) for n in range(CLIENTS)]

        async def all_watch(restarts: int) -> None:
            """So that each blow meets every watcher: on a busy machine one comes back later than the next blow."""
            while not all(watcher.connected > restarts for watcher in watchers):
                check(clients + watching)
                await asyncio.sleep(0.05)

        async def disturb() -> None:
            restarts = 0
            for blow in blows:
                await asyncio.sleep(calm_s * rng.uniform(0.7, 1.3))
                await all_watch(restarts)
                check(clients + watching)
                await blow(service)
                restarts += blow in (ended, killed)
            await all_watch(restarts)
            await asyncio.sleep(calm_s)
            known.over = True

        try:
            async with asyncio.timeout(len(blows) * 120 + 120):
                await asyncio.gather(disturb(), *clients)
                await judge(http, service.url, known, watchers)
            check(watching)
        finally:
            for task in watching + clients:
                task.cancel()
            await asyncio.wait(watching + clients)
        assert all(watcher.connected > len([blow for blow in blows if blow in (ended, killed)]) for watcher in watchers)
    return known


def check(tasks: list[asyncio.Task[None]]) -> None:
    """Raise what one of them has failed with."""
    for task in tasks:
        if task.done():
            task.result()


async def ended(service: Service) -> None:
    await service.end()
    await service.start()


async def killed(service: Service) -> None:
    await service.child.kill()
    await service.start()


def stopped(server: LockedMoto, seconds: float) -> Blow:
    """The store stands still for so long, and whoever asks it waits."""

    async def blow(_: Service) -> None:
        os.killpg(server._process.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.killpg(server._process.pid, signal.SIGCONT)

    return blow


@pytest.mark.timeout(900)
async def test_in_a_folder_nothing_is_lost_or_counted_twice(tmp_path: Path, full: bool, slice_seed: int) -> None:
    async with served("--url", str(tmp_path / "shop")) as service:
        blows = [ended, killed] * (5 if full else 1)
        known = await run_clients(service, slice_seed, blows, 8.0 if full else 1.0)
        assert known.answers["200"] > CLIENTS, known.answers
        assert known.answers["TimeoutError"] > 0, known.answers
        await service.end()


@pytest.fixture
def stores(aws_environment: dict[str, str]) -> Iterator[LockedMoto]:
    """S3 and DynamoDB that may be stopped without others' harm."""
    server = LockedMoto()
    yield server
    server.stop()


@pytest.mark.timeout(1_800)
async def test_in_s3_and_dynamodb_nothing_is_lost_or_counted_twice(
    stores: LockedMoto, full: bool, slice_seed: int
) -> None:
    place = await make_place("s3+dynamodb", ("contiguous", True), None, stores.url)
    assert place.metastore is not None
    environment = {} if full else {"SLATE_RETRY_DEADLINE_MS": "1500"}
    async with served("--url", place.path, "--metastore", place.metastore, **environment) as service:
        blows = (
            [killed, stopped(stores, 60), ended, stopped(stores, 20), killed] if full else [stopped(stores, 3), killed]
        )
        known = await run_clients(service, slice_seed, blows, 8.0 if full else 1.0)
        assert known.answers["200"] > CLIENTS, known.answers
        assert known.answers["503"] + sum(known.answers[kind.__name__] for kind in AWAY) > 0
        await service.end()
