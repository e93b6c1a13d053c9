"""A wire that breaks between the engine and S3 and DynamoDB: no acknowledged write lost, none applied twice.

Faults happen on the way through `tests.netproxy`; what is stored is judged afterwards over a wire that does not
break, once at reopening and once more when everything delivered late has landed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import slate_async as slate
from metastores.dynamodb_table import DynamoTable
from slate_async.objectstore.stats import StoreStats
from tests.engine import until
from tests.integration.places import Place, make_place
from tests.integration.wire import Ledger, OncePerKind
from tests.netproxy import (
    CONDITIONAL_CONFLICT,
    DYNAMODB_THROTTLED,
    INTERNAL_ERROR,
    PASS,
    SLOW_DOWN,
    Answer,
    CutAfter,
    CutBefore,
    CutInRequest,
    CutInResponse,
    Delay,
    DeliverLate,
    Fault,
    Request,
    WireProxy,
)

STORES = ("s3", "s3+if-match", "s3+dynamodb")
PROTOCOLS = ("contiguous", "epoch_prefixed")
CLIENTS = ("obstore", "aiobotocore")
COMBINATIONS = tuple(itertools.product(STORES, PROTOCOLS))
LATE_S = 0.15
HANG_S = 40.0
SMALL: dict[str, Any] = {
    "flush_interval_ms": 1,
    "flush_bytes": 512,
    "flush_parallelism": 3,
    "l0_sst_bytes": 16_384,
    "block_bytes": 1_024,
    "manifest_full_every": 4,
    "manifest_poll_interval_ms": 50,
}
DYNAMODB_FAILED = Answer(
    500,
    "Internal Server Error",
    b'{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"internal"}',
    "application/x-amz-json-1.0",
)


def throttled(request: Request) -> Fault:
    return DYNAMODB_THROTTLED if request.operation else SLOW_DOWN


def failed(request: Request) -> Fault:
    return DYNAMODB_FAILED if request.operation else INTERNAL_ERROR


def in_the_way(request: Request) -> Fault:
    return CONDITIONAL_CONFLICT if request.conditional else PASS


def always(fault: Fault) -> Callable[[Request], Fault]:
    return lambda request: fault


FAULTS: Mapping[str, Callable[[Request], Fault]] = {
    "cut before": always(CutBefore()),
    "reset before": always(CutBefore(reset=True)),
    "cut in the request": always(CutInRequest()),
    "cut after": always(CutAfter()),
    "reset after": always(CutAfter(reset=True)),
    "cut in the response": always(CutInResponse()),
    "delivered late": always(DeliverLate(LATE_S)),
    "delayed": always(Delay(before=0.03, after=0.03)),
    "throttled": throttled,
    "failed": failed,
    "in the way": in_the_way,
}


@pytest.fixture
def items_put(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry for each PutItem the metastore asked of its client."""
    asked: list[None] = []
    send = DynamoTable._send

    async def counted(table: DynamoTable, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if operation == "put_item":
            asked.append(None)
        return await send(table, operation, arguments)

    monkeypatch.setattr(DynamoTable, "_send", counted)
    return asked


def stats_of(environment: slate.Environment) -> StoreStats:
    """Counters of the one store client the environment has open."""
    [(store, _)] = environment._clients._stores._users.values()
    return store.stats  # type: ignore[attr-defined]


class Story:
    """Open, write, close, open again and read by way of a proxy; then compare without it."""

    def __init__(self, direct: Place, endpoint: str, proxy: WireProxy) -> None:
        self.direct = direct
        self.place = direct.through(endpoint, proxy.url)
        self.proxy = proxy
        self.ledger = Ledger("t")
        self.conditional_puts = 0

    async def visit(self, phase: Callable[[str], None] | None = None, *, tasks: int = 0, writes: int = 0) -> None:
        """One opening by way of the proxy; calls ``phase`` with the name of each next step."""
        async with slate.Environment() as environment:
            async with self.place.open(environment) as db:
                stats = stats_of(environment)
                if phase is not None:
                    phase("writing")
                await self.ledger.work(db, tasks=tasks, writes=writes)
                if phase is not None:
                    phase("ending")
                if tasks:
                    await self.ledger.write_one_more(db)
                await self.ledger.check(db)
                assert not self.ledger.refusals
                await until(lambda: db.status().state == "open", "every kind of request to be answered again")
            self.conditional_puts += stats.requests.get("put_if", 0)

    async def compare(self, openings: int = 1) -> None:
        """What an undisturbed successor sees, now and after the last late request; and its successors."""
        for _ in range(openings):
            async with self.direct.open() as successor:
                await self.ledger.check(successor)
                await asyncio.sleep(LATE_S)
                await self.ledger.check(successor)

    def check_sent_once(self, items_put: list[None]) -> None:
        """No layer below the engine repeated a conditional write. (One that met a connection the server had closed
        meanwhile was counted, but arrived nowhere.)"""
        arrived = self.proxy.count(conditional=True)
        assert 0 <= self.conditional_puts - arrived <= self.stale_connections(), (self.conditional_puts, arrived)
        assert 0 <= len(items_put) - self.proxy.count(operation="PutItem") <= self.stale_connections()

    def stale_connections(self) -> int:
        """At most so many connections were closed by the proxy while the client kept them for later use."""
        cuts = (CutBefore, CutInRequest, CutAfter, CutInResponse, DeliverLate, Delay)
        return sum(isinstance(seen.fault, cuts) for seen in self.proxy.seen)


def expected_kinds(store: str, protocol: str, wal: bool, fault: str) -> set[str]:
    """What at least must have met its fault, so that a story that asks for less is noticed."""
    conditional = {"creating: manifest commit", "reopening: manifest commit"}
    if store == "s3+dynamodb":
        conditional = set()
    if protocol == "contiguous":
        conditional |= {"creating: log put", "writing: log put", "ending: log put", "reopening: log put"}
    elif store != "s3+dynamodb":
        conditional |= {"creating: register put", "writing: register put", "reopening: register put"}
    if wal and store != "s3+dynamodb":
        conditional |= {"writing: manifest commit"}
    if fault == "in the way":
        return conditional
    kinds = conditional | {"writing: log put", "ending: log put", "reopening: log get"}
    if store == "s3":
        kinds |= {"creating: manifest list", "creating: boundary list", "reopening: manifest get"}
    if store == "s3+if-match":
        kinds |= {"creating: manifest body put", "reopening: manifest get"}
    if store == "s3+dynamodb":
        kinds |= {f"{phase}: {item}" for phase in ("creating", "reopening") for item in ("PutItem", "GetItem")}
        kinds |= {"creating: DescribeTable"}
    if protocol == "contiguous":
        kinds |= {"reopening: log list"}
    elif store != "s3+dynamodb":
        kinds |= {"reopening: register get"}
    if wal:
        kinds |= {"writing: SST put", "reopening: SST get"}
    return kinds


@dataclass(frozen=True)
class Setup:
    """What one run of a test is about."""

    store: str
    protocol: str
    client: str
    wal: bool


EVERY_SETUP = [Setup(*combination) for combination in itertools.product(STORES, PROTOCOLS, CLIENTS, (True, False))]
ROUNDS_FULL = 10


def setups(full: bool, seed: int) -> list[Setup]:
    """Some setups: those of this commit."""
    return random.Random(seed).sample(EVERY_SETUP, ROUNDS_FULL if full else 1)


async def meet_once(
    fault: str,
    setup: Setup,
    endpoint: str,
    items_put: list[None],
    phases: Sequence[str] = ("creating", "writing", "ending", "reopening"),
    **settings: object,
) -> None:
    """Every kind of request meets the fault once at creation, once while writing, once in the last write, once at
    reopening."""
    log = (setup.protocol, setup.wal)
    direct = await make_place(setup.store, log, None, endpoint, setup.client, **{**SMALL, **settings})
    items_put.clear()
    chooser = OncePerKind({**FAULTS, **OUTAGES}[fault], phases)
    chooser.begin("creating")
    async with asyncio.timeout(HANG_S), WireProxy(endpoint, chooser) as proxy:
        story = Story(direct, endpoint, proxy)
        await story.visit(chooser.begin, tasks=3, writes=5)
        assert story.ledger.outcomes() == {"acknowledged": 16}
        chooser.begin("reopening")
        await story.visit()
        story.check_sent_once(items_put)
        expected = expected_kinds(setup.store, setup.protocol, setup.wal, fault)
        assert {kind for kind in expected if kind.startswith(tuple(phases))} <= set(chooser.met)
        await story.compare()


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[name.replace(" ", "-") for name in FAULTS])
@pytest.mark.timeout(300)
async def test_every_kind_of_request_meets_the_fault_once(
    number: int,
    s3_endpoint: str,
    aws_environment: dict[str, str],
    items_put: list[None],
    full: bool,
    slice_seed: int,
) -> None:
    for setup in setups(full, slice_seed + number):
        print(setup)
        await meet_once(list(FAULTS)[number], setup, s3_endpoint, items_put)


MIXTURE: Sequence[tuple[float, str]] = (
    (0.02, "cut before"),
    (0.01, "reset before"),
    (0.02, "cut in the request"),
    (0.04, "cut after"),
    (0.01, "reset after"),
    (0.02, "cut in the response"),
    (0.03, "delivered late"),
    (0.04, "delayed"),
    (0.03, "throttled"),
    (0.02, "failed"),
    (0.03, "in the way"),
)
"""How many requests meet which fault: more than a quarter of all meet one."""


def mixture(rng: random.Random) -> Callable[[Request], Fault]:
    def choose(request: Request) -> Fault:
        draw = rng.random()
        for share, name in MIXTURE:
            draw -= share
            if draw < 0:
                return FAULTS[name](request)
        return PASS

    return choose


@pytest.mark.parametrize("store", STORES)
@pytest.mark.timeout(900)
async def test_mixtures_of_faults_are_survived(
    store: str, s3_endpoint: str, aws_environment: dict[str, str], items_put: list[None], full: bool, slice_seed: int
) -> None:
    """More than a quarter of all requests meet a fault, and yet every write is acknowledged, none twice."""
    for seed in range(slice_seed, slice_seed + (2 * ROUNDS_FULL if full else 1)):
        rng = random.Random(f"{seed} {store}")
        setup = Setup(store, PROTOCOLS[(seed + STORES.index(store)) % 2], rng.choice(CLIENTS), rng.random() < 0.7)
        print(seed, setup)
        direct = await make_place(store, (setup.protocol, setup.wal), None, s3_endpoint, setup.client, **SMALL)
        items_put.clear()
        async with asyncio.timeout(HANG_S), WireProxy(s3_endpoint, mixture(rng)) as proxy:
            story = Story(direct, s3_endpoint, proxy)
            await story.visit(tasks=3, writes=6)
            assert story.ledger.outcomes() == {"acknowledged": 19}
            await story.visit()
            story.check_sent_once(items_put)
            await story.compare(openings=2)


OUTAGES: Mapping[str, Callable[[Request], Fault]] = {
    "cut before": FAULTS["cut before"],
    "cut after": FAULTS["cut after"],
    "delivered late": FAULTS["delivered late"],
    "throttled": throttled,
    "failed": failed,
    "silent": always(Delay(before=2 * HANG_S)),
}
SHORT: dict[str, Any] = {"request_timeout_ms": 2_000, "retry_deadline_ms": 5_000, "takeover_deadline_ms": 6_000}
"""Yet long enough for a process that makes the clients of six databases meanwhile, each a second of work at worst."""


@pytest.mark.timeout(900)
async def test_outages_past_the_deadline_are_waited_out_or_close_the_database(
    s3_endpoint: str, aws_environment: dict[str, str], full: bool, slice_seed: int
) -> None:
    """Writes fail with "unknown" or "not applied", and rows not applied are not there. The database goes on when the
    wire does; one that is to close closes. Outages of all kinds run side by side, each on a wire of its own: most of
    the time passes waiting."""
    for number in range(ROUNDS_FULL if full else 1):
        async with asyncio.timeout(3 * HANG_S), asyncio.TaskGroup() as group:  # six are opened one after another
            for place, (kind, fault) in enumerate(OUTAGES.items()):
                setup = EVERY_SETUP[(slice_seed + number + 5 * place) % len(EVERY_SETUP)]
                started = asyncio.Event()
                judge = closes if kind == "failed" else goes_on
                group.create_task(outlast(fault, setup, s3_endpoint, started, judge), name=f"{place} {setup}")
                await started.wait()


async def open_at_last(place: Place, on_outage: str) -> slate.Db:
    """Open with short deadlines: setting up the clients alone may use them up on a loaded machine."""
    for _ in range(9):
        with contextlib.suppress(slate.UnavailableError):
            return await place.open(**SHORT, on_outage=on_outage)
    return await place.open(**SHORT, on_outage=on_outage)


async def closes(db: slate.Db, proxy: WireProxy) -> None:
    """The database must end by itself, and say how."""
    with pytest.raises(slate.ClosedError) as closed:
        await db.wait_closed()
    cause = closed.value.__cause__
    assert isinstance(cause, slate.UnavailableError)
    assert db.status().state == "failed"
    with pytest.raises(slate.ClosedError) as late:
        await db.put(b"late", b"")
    assert late.value.outcome == "not_applied"


async def goes_on(db: slate.Db, proxy: WireProxy) -> None:
    """The database must refuse writes, and take them again when the wire is mended."""
    await until(lambda: db.status().outage is not None, "the writer to give up")
    assert db.status().state == "degraded"
    with pytest.raises(slate.UnavailableError) as late:
        await db.put(b"late", b"")
    assert late.value.outcome == "not_applied"
    proxy.choose = always(PASS)
    await until(lambda: db.status().outage is None, "the database to go on", seconds=HANG_S)
    again = Ledger("again")
    await again.work(db, tasks=3, writes=4)
    assert again.outcomes() == {"acknowledged": 12}
    await again.check(db)


async def outlast(
    fault: Callable[[Request], Fault],
    setup: Setup,
    endpoint: str,
    started: asyncio.Event,
    judge: Callable[[slate.Db, WireProxy], Awaitable[None]],
) -> None:
    """Write while the wire breaks, until the writer gives up."""
    direct = await make_place(setup.store, (setup.protocol, setup.wal), None, endpoint, setup.client, **SMALL)
    ledger = Ledger("t")
    async with WireProxy(endpoint) as proxy:
        try:
            db = await open_at_last(direct.through(endpoint, proxy.url), "close" if judge is closes else "reopen")
        finally:
            started.set()
        working = asyncio.create_task(ledger.work(db, tasks=4, writes=1_000))
        await ledger.grown(8, working)
        proxy.choose = fault
        await working
        await ledger.write_one_more(db)  # failing reads alone end the workers, but not the database
        await judge(db, proxy)
        assert ledger.outcomes().get("unknown", 0) >= 1
        await db.close()
    async with direct.open() as successor:
        await ledger.check(successor)
        assert await successor.get(b"late") is None


@pytest.mark.timeout(600)
async def test_one_request_without_an_answer_is_given_up_and_repeated(
    s3_endpoint: str, aws_environment: dict[str, str], items_put: list[None], full: bool, slice_seed: int
) -> None:
    """A request that hangs costs its own timeout, not the database."""
    for setup in setups(full, slice_seed):
        print(setup)
        await meet_once("silent", setup, s3_endpoint, items_put, phases=("writing",), request_timeout_ms=600)


@pytest.mark.slow
@pytest.mark.parametrize(("store", "protocol"), COMBINATIONS)
async def test_an_outage_of_seconds_is_waited_out(
    store: str, protocol: str, s3_endpoint: str, aws_environment: dict[str, str]
) -> None:
    """Within ``retry_deadline_ms`` nothing ends, whatever the number of attempts it takes."""
    direct = await make_place(store, (protocol, True), None, s3_endpoint, **SMALL)
    ledger = Ledger("t")
    async with asyncio.timeout(HANG_S), WireProxy(s3_endpoint) as proxy:
        async with direct.through(s3_endpoint, proxy.url).open() as db:
            working = asyncio.create_task(ledger.work(db, tasks=3, writes=20))
            await ledger.grown(8, working)
            proxy.choose = FAULTS["cut before"]
            await asyncio.sleep(8)
            proxy.choose = always(PASS)
            await working
            assert ledger.outcomes() == {"acknowledged": 60}
            assert not ledger.refusals
    async with direct.open() as successor:
        await ledger.check(successor)
