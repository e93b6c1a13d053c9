"""Writers, readers and controllers of one collection that are killed and frozen at random, over real stores.

Then every acknowledged append is in what is read, all that readers saw meanwhile are the contents at those times, a
verification is clean, and at rest the store holds exactly what the head names.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import slate_async as slate
from metastores.names import MERGED_AREAS
from slate_async.collections.core.names import hold_name
from tests.integration.lake_worker import COLLECTION, COUNT, contents_before, digest, number, rows_at
from tests.integration.places import make_bucket, make_table, url_query
from tests.integration.processes import ChildProcess
from tests.slices import sample

ROLES = (
    ("writer", "a"),
    ("writer", "a"),
    ("writer", "b"),
    ("writer", "b"),
    ("controller", ""),
    ("controller", ""),
    ("listener", ""),
    ("listener", ""),
    ("lagger", ""),
    ("snapshots", ""),
    ("cloner", ""),
    ("critical", ""),
)
SETTINGS = {
    "lease_ms": 2_000,
    "poll_interval_ms": 150,
    "downgrade_interval_ms": 200,
    "shard_patience_ms": 500,
    "exert_interval_ms": 500,
    "gc_interval_ms": 700,
    "version_keep_ms": 0,
}
SECONDS = 20
SECONDS_FULL = 180
"""Of killing."""
REST_SECONDS = 240
PLACES = [
    ("local", "definite"),
    ("s3+dynamodb", "compare"),
    ("local", "compare"),
    ("s3+dynamodb", "definite"),
]
EXPECTED_FAILURES = ("LeaseLostError", "SinceError", "UnavailableError", "FencedError", "TokenMismatchError")
"""What a process may meet that was frozen, or whose rival was killed."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One of the places, another one with every commit; all of them in the long form."""
    if "store" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full")
        metafunc.parametrize(("store", "appends"), PLACES if full else sample(PLACES, 1, "kills of collections"))


@dataclass
class Worker:
    """The processes that had one role, one after another."""

    role: str
    writer: str
    place: list[str]
    child: ChildProcess | None = None
    begun: int = 0
    life: str = ""
    lines: list[str] = field(default_factory=list)

    async def start(self, tag: str) -> None:
        arguments = ["tests/integration/lake_worker.py", self.role, *self.place]
        named = ["--writer", self.writer] if self.writer else []
        self.begun += 1
        self.life = f"{tag}-{self.begun}"
        self.child = ChildProcess([*arguments, *named, "--tag", self.life, "--seed", self.life])
        await self.child.__aenter__()

    async def kill(self) -> None:
        child, self.child = self.child, None
        if child is not None:
            ended = child.returncode is not None
            await child.__aexit__(None, None, None) if not ended else None
            self.lines += child.received
            assert not ended, f"{self.role} ended by itself: {child.received[-3:]}\n{child.stderr_tail()}"


def lines_of(workers: Iterable[Worker], kind: str, *roles: str) -> Iterator[list[str]]:
    """The words after ``kind`` of all such lines."""
    for worker in workers:
        for line in worker.lines if not roles or worker.role in roles else ():
            first, *words = line.split(" ")
            if first == kind:
                yield words


async def outlast(workers: list[Worker], collection: slate.Collection) -> None:
    """Freeze the controller of the newest epoch until another one has taken over, and a listener until its lease was
    taken. Both say so once they go on."""
    controllers = [worker.child for worker in workers if worker.role == "controller"]
    listening = next(worker for worker in workers if worker.role == "listener")
    while True:
        owner = max((child for child in controllers if child is not None), key=epoch_of)
        await owner.freeze()
        if is_serving(owner) and all(child is owner or epoch_of(child) < epoch_of(owner) for child in controllers):
            break
        owner.thaw()  # it was fenced just now
        await asyncio.sleep(0.1)
    frozen_at, epoch = len(owner.received), epoch_of(owner)
    [rival] = [child for child in controllers if child is not None and child is not owner]
    await rival.wait_for_line(lambda line: line.startswith("epoch ") and int(line[6:]) > epoch, timeout=60)
    listener = await frozen_with_hold(listening, collection)
    missed_at = len(listener.received)
    for _ in range(600):  # the rival keeps the role meanwhile, so it sees the whole lease pass
        if not await is_standing(collection, listening):
            break
        await asyncio.sleep(0.1)
    else:
        pytest.fail(f"nobody revoked the hold of a listener that stood still: {await collection.inspect()}")
    owner.thaw()
    listener.thaw()
    assert await owner.wait_for_line("ended", start=frozen_at, timeout=60) == "ended FencedError"
    await listener.wait_for_line("failed LeaseLostError", start=missed_at, timeout=60)
    await listener.wait_for_line("at", start=missed_at, timeout=60)


def epoch_of(child: ChildProcess | None) -> int:
    """The newest one that a controller said it has."""
    said = [] if child is None else [int(line[6:]) for line in child.received if line.startswith("epoch ")]
    return max(said, default=0)


def is_serving(child: ChildProcess) -> bool:
    """Whether a controller has not said that its newest epoch has ended."""
    return child.received[-1].startswith("epoch ")


async def frozen_with_hold(worker: Worker, collection: slate.Collection) -> ChildProcess:
    """The process of ``worker``, which stands still while it has a hold."""
    assert worker.child is not None
    for _ in range(600):
        await worker.child.freeze()
        if await is_standing(collection, worker):
            return worker.child
        worker.child.thaw()  # between two holds
        await asyncio.sleep(0.1)
    pytest.fail(f"a listener had no hold: {worker.child.received[-3:]}")


async def is_standing(collection: slate.Collection, worker: Worker) -> bool:
    """Whether a listener's process has a hold that is not revoked."""
    holds = (await collection.inspect()).holds
    return any(hold.note == f"listener {worker.life}" and not hold.revoked for hold in holds)


async def disturb(workers: list[Worker], seconds: float, rng: random.Random) -> None:
    """Kill and start again, or freeze for a while, one after another."""
    frozen: list[tuple[Worker, ChildProcess]] = []  # the ones that stand still longest come first
    over = time.monotonic() + seconds
    for deed in itertools.count():
        if time.monotonic() >= over:
            break
        await asyncio.sleep(rng.uniform(0.1, 1.2))
        index = rng.randrange(len(workers))
        worker = workers[index]
        if rng.random() < 0.6:
            frozen = [pair for pair in frozen if pair[0] is not worker]
            await worker.kill()
            await worker.start(f"{index}-{deed}")
        elif worker.child is not None and all(frozen_worker is not worker for frozen_worker, _ in frozen):
            await worker.child.freeze()
            frozen.append((worker, worker.child))
        if len(frozen) > 3:
            frozen.pop(0)[1].thaw()
    for _, child in frozen:
        child.thaw()
    await asyncio.sleep(2)


async def keep_verifying(collection: slate.Collection) -> None:
    """Verify again and again; nothing may be found that is not wrong."""
    while True:
        try:
            report = await collection.verify()
        except slate.LeaseLostError:
            continue  # the machine was too busy to renew it
        assert report.clean, report.findings


async def place_of(store: str, folder: Path, request: pytest.FixtureRequest) -> tuple[str, str | None]:
    if store == "local":
        return str(folder / "lake"), None
    endpoint = request.getfixturevalue("s3_endpoint")
    return f"s3://{make_bucket(endpoint)}/lake{url_query(endpoint)}", await make_table(endpoint)


@pytest.mark.timeout(1_200)
async def test_processes_that_are_killed_lose_nothing_and_leave_nothing(
    store: str,
    appends: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    aws_environment: dict[str, str],
    full: bool,
    slice_seed: int,
) -> None:
    rng = random.Random(f"{slice_seed} {store} {appends}")
    path, metastore = await place_of(store, tmp_path, request)
    settings = slate.CollectionSettings(**SETTINGS)  # type: ignore[arg-type]
    options = [path, *(["--metastore", metastore] if metastore else []), "--settings", json.dumps(SETTINGS)]
    async with slate.open_collections(path, metastore=metastore, settings=settings) as lake:
        await (await lake.create(COLLECTION, appends=appends)).expire()  # type: ignore[arg-type]
        workers = [Worker(role, writer, options) for role, writer in ROLES]
        try:
            for index, worker in enumerate(workers):
                await worker.start(f"{index}")
            for worker in workers:
                assert worker.child is not None
                await worker.child.wait_for_line(lambda line: line.startswith(("ack", "at", "epoch")), timeout=120)
            await outlast(workers, lake.collection(COLLECTION))
            verifying = asyncio.create_task(keep_verifying(lake.collection(COLLECTION)))
            await disturb(workers, SECONDS_FULL if full else SECONDS, rng)
            verifying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await verifying
        finally:
            for worker in workers:
                await worker.kill()
        unexpected = [words for words in lines_of(workers, "failed") if words[0] not in EXPECTED_FAILURES]
        unexpected += [words for words in lines_of(workers, "ended") if words[0] != "FencedError"]
        assert unexpected == []
        collection = lake.collection(COLLECTION)
        report = await collection.verify()
        assert report.clean, report.findings
        await check_answers(collection, workers, appends)
        await check_rest(collection, path, metastore)


async def check_answers(collection: slate.Collection, workers: list[Worker], appends: str) -> None:
    """Everything acknowledged is in, and everything that was read is what was written."""
    acknowledged = [(int(lower), int(upper), data) for lower, upper, data in lines_of(workers, "ack")]
    seen = {(int(upper), found) for upper, found in lines_of(workers, "at")}
    assert len(acknowledged) > 20
    assert len(seen) > 20
    async with collection.reader("check") as reader:
        last = max(max(upper for _, upper, _ in acknowledged), *(upper for upper, _ in seen)) - 1
        async with asyncio.timeout(60), await reader.snapshot(last) as snapshot:
            contents = dict([row async for row in snapshot.rows()])
    if appends == "definite":
        assert contents == contents_before(last + 1)
        wrong = {(upper, found) for upper, found in seen if digest(contents_before(upper)) != found}
    else:
        data = {key.decode(): int(key.rpartition(b"@")[2]) for key in contents if key != COUNT}
        assert set(contents.values()) <= {1, last + 1}
        assert sorted(data.values()) == list(range(last + 1)), "appends form one chain"
        assert {data for _, _, data in acknowledged} <= set(data)
        wrong = {(upper, found) for upper, found in seen if digest(chain_before(data, upper)) != found}
    assert wrong == set()


def chain_before(data: dict[str, int], upper: int) -> dict[bytes, int]:
    """Of a compare collection that ends with ``data``, each with its time: the contents before ``upper``."""
    found = {key.encode(): 1 for key, time in data.items() if time < upper}
    return {**found, COUNT: upper} if upper else found


async def check_rest(collection: slate.Collection, path: str, metastore: str | None) -> None:
    """Once all leases have ended and a controller has settled, the store holds what the head names and nothing else."""
    if (await collection.info()).appends == "definite":
        await fill_gaps(collection)
    held = await collection.critical("billing")
    await held.expire()
    reports: list[object] = []
    async with collection.controller(background=False) as controller:
        try:
            async with asyncio.timeout(REST_SECONDS):
                while True:
                    await controller.settle()
                    reports.append(report := await controller.round())
                    if not report.held_back.since_by and not report.changed:
                        break
                    await asyncio.sleep(0.2)
        except TimeoutError:
            pytest.fail(
                f"it never came to rest, in {len(reports)} rounds: {reports[-3:]}, {await collection.inspect()}"
            )
    async with collection._stores() as stores:
        head = await stores.versions.load()
        assert [ref.version for ref in await stores.versions.stored()] == [head.version]
        assert len(head.batches) <= 1
        keys = {info.key async for info in stores.store.list()}
        named = set(head.names())
        batches = {key for key in keys if key.partition(".p")[0] in named}
        assert batches >= named
        others = [key for key in keys - batches if not key.startswith(MERGED_AREAS.folder)]
        assert others == [hold_name("billing")]  # which says that it was given up
    assert (await collection.verify()).clean


async def fill_gaps(collection: slate.Collection) -> None:
    """Append what is missing before batches that were put out of their order, so that they are taken in."""
    async with collection._stores() as stores:
        uppers = [listed.name.upper async for listed in stores.pending.list()]
    ends = [number(upper) for upper in uppers if isinstance(upper, slate.Frontier)]
    async with collection.writer("a") as writer:
        lower, upper = number(writer.upper), max([*ends, number(writer.upper)])
        if lower < upper:
            rows = [row for time in range(lower, upper) for row in rows_at(time)]
            await writer.append(rows, lower=lower, upper=upper)
