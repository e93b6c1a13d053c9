"""Drivers of bulk ingests whose jobs end with them (rule 31), beside writers that come and go, by clocks that differ.

``leases-…``: all faults. What a call raised for is never seen, unless it said that this is unknown; what has expired is
never seen, whoever renews, commits or opens later. ``script-lease-ended``: a driver dies or stands still between its
commit and its application, and a writer finds the job when its lease has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import slate_async as slate
from slate_async.errors import SlateError
from slate_async.storage.manifest.edits.ingests import find_ingest
from slate_async.storage.manifest.state import ABORTED, EXPIRED, ManifestState
from tests.engine import on
from tests.simulation.checkers import Violation
from tests.simulation.history import Kind, Write
from tests.simulation.node import Node, NodeCrashedError
from tests.simulation.scenarios.engine import KINDS
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.ingester import CALM, Ingester, batches_of
from tests.simulation.scenarios.engine.params import LEASE_SKEW_MS
from tests.simulation.scenarios.engine.play import Play, drawn_params, make_world
from tests.simulation.scenarios.engine.stage import Stage, scripted
from tests.simulation.scenarios.protocol import Scenario

LEASE_MS = 400
SKEW_MS = 400
"""How wrong clocks are; two of them differ by twice as much, and drift."""
LEASE_OVER_S = (LEASE_MS + LEASE_SKEW_MS + 2 * SKEW_MS + 200) / 1000
"""After this long a lease has ended by every clock."""
MODES: Sequence[Any] = ("ingest", "ingest", "ingest", "auto", "exclusive")


class LeasedDriver:
    """One process's jobs, each of a drawn name and with one attempt, through the product's own handle."""

    def __init__(self, database: SimulatedDatabase, node: Node) -> None:
        self._database = database
        self._node = node
        self._ingester = Ingester(database, node)

    async def step(self, mode: Any, *, timeout_s: float, nap_s: float = 0.0) -> None:
        """One job. Of a call that raises nothing may be seen, unless it names the job, as unknown."""
        write = self._ingester.begin()
        try:
            info = await self._load(write, mode, timeout_s, nap_s)
        except slate.IngestPendingError as unknown:
            if "abort-ingest" not in str(unknown) and "was applied under" not in str(unknown):
                raise Violation("unnamed", f"{write}: {unknown}") from unknown
            self._database.count("leases-unknown")
        except SlateError as error:
            write.refused = True
            self._database.count(f"leases-{type(error).__name__}")
        else:
            write.seq = info.seq or write.seq
            self._database.history.ack(write)
            self._database.count(f"leases-{info.state}")

    async def _load(self, write: Write, mode: Any, timeout_s: float, nap_s: float) -> slate.IngestInfo:
        if mode == "ingest":
            return await self._loaded(write, mode, timeout_s, nap_s)
        attempt = self._database.attempts.begin(self._node.name, self._database.history.now())  # to become the writer
        try:
            return await self._loaded(write, mode, timeout_s, nap_s)
        finally:
            attempt.ended = min(attempt.ended, self._database.history.now())

    async def _loaded(self, write: Write, mode: Any, timeout_s: float, nap_s: float) -> slate.IngestInfo:
        database, node = self._database, self._node
        async with on(node.runtime).open_ingest(
            database.store(node),
            job_id=job_of(write),
            leased=True,
            mode=mode,
            name=database.name,
            metastore=database.factory(node),
            settings=database.params.settings(node.rng, None),
        ) as job:
            await job.write(batches_of(write.id, write.changes))
            await node.runtime.clock.sleep(nap_s)
            return await job.commit(timeout=timeout_s)


def job_of(write: Write) -> str:
    """The name of the job that brings ``write``."""
    return f"drawn-{write.id}"


async def drive(database: SimulatedDatabase, node: Node) -> None:
    """Load until the calm."""
    driver, rng = LeasedDriver(database, node), node.rng
    for _ in database.turns(CALM):
        await node.runtime.clock.sleep(rng.uniform(0, 0.4))
        await driver.step(
            rng.choice(MODES), timeout_s=rng.choice((0.1, 0.5, 3.0)), nap_s=rng.choice((0.0, 0.0, 0.3, 2.0))
        )


class LeasePlay(Play):
    """`Play` with such drivers for ingesters."""

    skew_ms = SKEW_MS

    def _start_helpers(self) -> None:
        for number in range(self.database.params.ingesters):
            self._start(f"driver{number}", self.world.rng.uniform(0, 1), drive, lives=3)
        self._start("watcher", 0.1, watch, lives=1)

    async def _judge(self) -> None:
        node = self.world.node("judge")
        state = await node.run(self.database.handle(node).driver.load())
        assert state is not None
        note_ended(self.database, state)
        await super()._judge()


async def watch(database: SimulatedDatabase, node: Node) -> None:
    """Note, again and again, what has ended: it must stay so."""
    handle = database.handle(node)
    while not database.over:
        await node.runtime.clock.sleep(0.2)
        with suppress(SlateError):
            state = await handle.driver.load()
            if state is not None:
                note_ended(database, state)


def note_ended(database: SimulatedDatabase, state: ManifestState) -> None:
    """What ``state`` says of jobs that ended without effect."""
    by_job = {job_of(write): write for write in database.history.writes.values() if write.ingested}
    for record in state.ingest_records:
        write = by_job.get(record.id)
        if write is not None and record.outcome in (EXPIRED, ABORTED):
            if record.outcome == EXPIRED and not write.refused:
                database.count("leases-expired")
            write.refused = True


def _scenario(name: str, **fixed: Any) -> Scenario:
    chosen = {**fixed, "ingesters": 2, "lease_ms": LEASE_MS, "active_seconds": 6.0, "rounds": 12}
    return Scenario(
        f"leases-{name}",
        f"ingests that end with their drivers: the log {name}, all faults",
        lambda seed, keep: make_world(seed, keep, chosen),
        lambda world: LeasePlay(world, drawn_params(world.seed, chosen)).run(),
    )


async def lease_ended(stage: Stage) -> None:
    """A driver dies or stands still between commit and application; a writer that finds its job later ends it"""
    rng, database = stage.rng, stage.database
    owner = await stage.writer("owner")
    await stage.write(owner, rng.randint(1, 3))
    lives_on = rng.random() < 0.4  # and does not look for a minute
    if not lives_on:
        await owner.node.run(owner.close())
    node = stage.world.node("driver", skew_ms=rng.randrange(-SKEW_MS, SKEW_MS))
    driving = node.spawn(LeasedDriver(database, node).step("ingest", timeout_s=60.0))
    await _until_one_waits(stage)
    await asyncio.sleep(rng.uniform(0, 3 * LEASE_MS / 1000))
    frozen = rng.random() < 0.5
    if frozen:
        node.freeze()
    else:
        node.crash()
    await stage.world.network.quiet()
    await asyncio.sleep(LEASE_OVER_S)
    for job in _pending(await stage.head()):
        database.count("leases-left")
        _write_of(database, job).refused = True
    finder = owner
    if not lives_on or rng.random() < 0.5:
        finder = await stage.writer("finder")
    await stage.write(finder, rng.randint(0, 2))
    await finder.node.run(finder.db.confirm())
    await _until_none_waits(stage)
    if not await finder.node.run(finder.look(Kind.DURABLE)):
        raise Violation("stuck", "the finder could not read")
    if frozen:
        node.thaw()
        await node.join(driving)
        return
    with suppress(NodeCrashedError):
        await node.join(driving)


def _pending(state: ManifestState) -> list[str]:
    return [job.id for job in state.ingests if job.pending]


def _write_of(database: SimulatedDatabase, job: str) -> Write:
    [write] = [write for write in database.history.writes.values() if write.ingested and job_of(write) == job]
    return write


async def _until_one_waits(stage: Stage) -> None:
    for _ in range(1_000):
        if _pending(await stage.head()):
            return
        await asyncio.sleep(stage.rng.uniform(0.001, 0.05))
    raise Violation("stuck", "the driver commits nothing")


async def _until_none_waits(stage: Stage) -> None:
    for _ in range(200):
        state = await stage.head()
        if not _pending(state):
            return
        await asyncio.sleep(0.05)
    raise Violation("stuck", f"nobody ends {[find_ingest(state, job) for job in _pending(state)]}")


LEASES: Sequence[Scenario] = tuple(_scenario(name, **fixed) for name, fixed in KINDS.items())
LEASE_SCRIPTS: Sequence[Scenario] = (scripted("lease-ended", lease_ended, lease_ms=LEASE_MS),)
