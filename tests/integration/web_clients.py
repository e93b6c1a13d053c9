"""Clients of the web example, and what they know of it: every answer is noted, and judged against what is there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp

COUNTERS = [f"c{number}" for number in range(4)]
PAUSE_S = 0.8
TIMEOUT_S = 15.0
IMPATIENT = 0.07
"""So often a client goes away before the answer comes."""
AWAY = (aiohttp.ClientError, ConnectionError, TimeoutError)
"""The service has given no answer: nobody knows what became of the request."""

Answer = tuple[int, Any, str | None]
"""Status, body, ETag."""


class Known:
    """What all clients together were answered.

    counted: by how much each counter went up for sure; values: what increments made of it
    sellers: of each SKU, who was answered that it is theirs; changes: of each SKU, of how many changes it was answered
    that they are in, and unsure: of how many nobody knows
    replaced: revisions that a change was allowed to replace
    """

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.values: dict[str, list[int]] = {counter: [] for counter in COUNTERS}
        self.sellers: dict[str, str] = {}
        self.changes: Counter[str] = Counter()
        self.unsure: Counter[str] = Counter()
        self.replaced: set[str] = set()
        self.answers: Counter[str] = Counter()
        self.over = False


class Client:
    """One of many. ``http`` is shared."""

    def __init__(self, number: int, url: str, http: aiohttp.ClientSession, known: Known, seed: int) -> None:
        self._name = f"client{number}"
        self._url = url
        self._http = http
        self._known = known
        self._rng = random.Random(seed * 1_000 + number)
        self._token = ""

    async def run(self) -> None:
        """Requests until it is over; the last one to its end."""
        steps = ((0.5, self.count), (0.15, self.sell), (0.2, self.change), (0.1, self.look), (0.05, self.walk))
        weights, calls = [weight for weight, _ in steps], [call for _, call in steps]
        while not self._known.over:
            await self._rng.choices(calls, weights)[0]()
            await asyncio.sleep(self._rng.uniform(0, PAUSE_S))

    # ---- requests

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer | None:
        """One request, of a session; ``None``: there was no answer, or none that says what became of it."""
        try:
            if not self._token:
                answer = await self._once("POST", "/sessions", {"user": self._name}, {})
                if answer[0] == 201:
                    self._token = answer[1]["token"]
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            answer = await self._once(method, path, body, {"Authorization": f"Bearer {self._token}", **named})
        except AWAY as error:
            self._known.answers[type(error).__name__] += 1
            return None
        self._known.answers[str(answer[0])] += 1
        if answer[0] in (401, 403):
            self._token = ""  # the session has ended: sign in
            return None
        assert answer[0] < 500 or answer[0] == 503, answer
        return None if answer[0] == 503 else answer

    async def _once(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        seconds = self._rng.uniform(0.002, 0.05) if self._rng.random() < IMPATIENT else TIMEOUT_S
        limit, url = aiohttp.ClientTimeout(total=seconds), self._url + path
        async with self._http.request(method, url, json=body, headers=headers, timeout=limit) as response:
            text = await response.read()
            tag = response.headers.get("ETag")
            return response.status, json.loads(text) if text.startswith((b"{", b"[")) else None, tag

    async def insist(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """As `ask`, again and again until there is an answer."""
        while True:
            answer = await self.ask(method, path, body, **headers)
            if answer is not None:
                return answer
            await asyncio.sleep(self._rng.uniform(0.05, 0.5))

    # ---- steps

    async def count(self) -> None:
        """One increment, once, whatever happens on the way."""
        counter, by, known = self._rng.choice(COUNTERS), self._rng.choice((1, 1, 1, 5)), self._known
        status, body, _ = await self.insist(
            "POST", f"/counters/{counter}", {"by": by}, Idempotency_Key=uuid.UUID(int=self._rng.getrandbits(128)).hex
        )
        assert status == 200, (status, body)
        known.counted[counter] += by
        known.values[counter].append(body["value"])

    async def sell(self) -> None:
        """A product under a SKU that others want too: it has one seller."""
        known = self._known
        sku = f"sku{len(known.sellers) // 3 * 3 + self._rng.randrange(6):04}"
        new = {"sku": sku, "name": self._name, "cents": 0}
        answer = await self.ask("POST", "/products", new)
        if answer is not None and answer[0] == 201:
            assert known.sellers.setdefault(sku, self._name) == self._name, f"{sku} was sold twice"
            return
        status, body, _ = await self.insist("GET", f"/products/{sku}")
        if answer is None:
            assert status in (200, 404), body
        else:
            assert (answer[0], status) == (409, 200), (answer, body)
        if status == 200:
            assert known.sellers.setdefault(sku, body["name"]) == body["name"], f"{sku} has another seller"

    async def change(self) -> None:
        """One more cent, if nobody was faster."""
        known = self._known
        if not known.sellers:
            return
        sku = self._rng.choice(list(known.sellers))
        status, body, tag = await self.insist("GET", f"/products/{sku}")
        assert status == 200, f"{sku} was acknowledged, and is not there"
        assert tag is not None
        body["cents"] += 1
        answer = await self.ask("PUT", f"/products/{sku}", body, If_Match=tag)
        if answer is None:
            known.unsure[sku] += 1
        elif answer[0] == 200:
            assert tag not in known.replaced, f"{sku}: two changes replaced the same revision"
            known.replaced.add(tag)
            known.changes[sku] += 1
        else:
            assert answer[0] == 412, answer

    async def look(self) -> None:
        """A counter is never below what was answered before the question."""
        counter = self._rng.choice(COUNTERS)
        least = max(self._known.values[counter], default=0)
        status, body, _ = await self.insist("GET", f"/counters/{counter}")
        assert status == 200, (status, body)
        assert body["value"] >= least, f"{counter} was {least} before"

    async def walk(self) -> None:
        """All products, a page at a time: those that were there before, each once, in order."""
        there, after, skus = set(self._known.sellers), "", list[str]()
        while True:
            status, body, _ = await self.insist("GET", f"/products?limit=7{after}")
            assert status == 200, (status, body)
            skus += [item["sku"] for item in body["items"]]
            if body["next"] is None:
                break
            after = f"&after={body['next']}"
        assert skus == sorted(set(skus)), f"pages are {skus}"
        assert there <= set(skus), f"pages lack {there - set(skus)}"


class Watcher:
    """One EventSource. It comes again, as browsers do, with the last id that it has.

    seen: of each counter its values, in the order in which they came"""

    def __init__(self, url: str, http: aiohttp.ClientSession, known: Known) -> None:
        self._url = f"{url}/events"
        self._http = http
        self._known = known
        self.last_id = 0
        self.connected = 0
        self.seen: dict[str, list[int]] = {counter: [] for counter in COUNTERS}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            with contextlib.suppress(*AWAY):
                await self._listen()
            await asyncio.sleep(0.1)

    async def until(self, totals: Mapping[str, int]) -> None:
        """Wait until it has seen each counter at its total."""
        for counter, total in totals.items():
            while total and self.seen[counter][-1:] != [total]:  # noqa: ASYNC110 - it may never come, which a test says
                await asyncio.sleep(0.05)

    async def _listen(self) -> None:
        headers = {"Last-Event-ID": str(self.last_id)}
        forever = aiohttp.ClientTimeout(total=None, sock_read=30.0)
        async with self._http.get(self._url, headers=headers, timeout=forever) as response:
            assert response.status in (200, 503), await response.text()
            if response.status == 503:
                return
            self.connected += 1
            async for number, event in _events(response.content):
                assert number > self.last_id, f"event {number} came after {self.last_id}"
                self.last_id = number
                self.seen[event["counter"]].append(event["value"])


async def _events(lines: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, Any]]:
    """Numbers and data of whole events."""
    fields: dict[str, str] = {}
    async for line in lines:
        if not line.endswith(b"\n"):
            return  # cut off
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "data" in fields:
            yield int(fields["id"]), json.loads(fields["data"])
            fields = {}
        else:
            fields = {}  # a ping


async def judge(http: aiohttp.ClientSession, url: str, known: Known, watchers: Sequence[Watcher]) -> None:
    """Counters are exact, nothing acknowledged is lost, and every watcher has seen each change once, in order."""
    client = Client(-1, url, http, known, 0)
    totals: dict[str, int] = {}
    for counter in COUNTERS:
        _, body, _ = await client.insist("GET", f"/counters/{counter}")
        totals[counter] = body["value"]
    counted = {counter: known.counted[counter] for counter in COUNTERS}
    assert totals == counted, f"counters are {totals}, and {counted} was acknowledged"
    for counter, values in known.values.items():
        assert len(set(values)) == len(values), f"{counter}: two increments made the same value"
    for sku, seller in known.sellers.items():
        status, body, _ = await client.insist("GET", f"/products/{sku}")
        assert (status, body and body["name"]) == (200, seller), f"{sku} is lost"
        least = known.changes[sku]
        assert least <= body["cents"] <= least + known.unsure[sku], f"{sku}: {least} changes were acknowledged: {body}"
    async with asyncio.timeout(30):
        await asyncio.gather(*(watcher.until(totals) for watcher in watchers))
    for watcher in watchers:
        for counter, values in watcher.seen.items():
            assert values == sorted(known.values[counter]), f"{counter}: a watcher saw other changes"
