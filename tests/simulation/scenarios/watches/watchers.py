"""Processes with watchers: a writer's life with some, and readers that are watched."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import slate_async as slate
from slate_async.errors import ConfigError, ConflictError, NotFoundError, UnavailableError
from tests.engine import on
from tests.simulation.checkers import Violation
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.workload import EXPECTED, Session, check_quiet, end
from tests.simulation.scenarios.watches.watched import Watched

PREFIXES = (b"", b"", b"k", b"m", b"m0", b"k1")
WATCHERS = 4
SETTLE_SECONDS = 300
"""A watcher of an open writer in a calm world has got everything by then."""


def chosen(node: Node) -> dict[str, int]:
    """Settings that make watchers fall behind often."""
    return {
        "watch_buffer_rows": node.rng.choice((1, 4, 20, 4_096)),
        "retention_ms": node.rng.choice((0, 3_600_000, 3_600_000)),
    }


class WatchSession(Session):
    """A writer's life beside watchers."""

    async def _opened(self) -> slate.Db:
        database, node = self.database, self.node
        settings = database.params.settings(self.rng, self._poll_ms).replace(
            **chosen(node), on_outage=self.rng.choice(("reopen", "close"))
        )
        return await on(node.runtime).open(
            database.store(node), name=database.name, metastore=database.factory(node), settings=settings
        )


async def watch(
    database: SimulatedDatabase, node: Node, source: slate.Db | slate.DbReader, seen: list[Watched], name: str
) -> None:
    """Watch until the database ends; now and then slowly, and now and then again from where it was."""
    rng = node.rng
    prefix = rng.choice(PREFIXES)
    begin: int | None = None
    while True:
        made = source.watch(prefix=prefix, from_seq="now" if begin is None else begin)
        watched = Watched(name, prefix, made.last_seq, made.last_seq)
        seen.append(watched)
        try:
            await _take(node, made, watched, rng.randint(1, 60))
            begin = watched.end if rng.random() < 0.8 else None
        except NotFoundError as error:
            database.count("watches-compacted")
            begun = begin is None and (watched.rows or isinstance(source, slate.Db))  # a reader's feed begins later
            if database.params.faults == 0 and begun:
                raise Violation("watch", f"{name} missed what it needs, from {made.last_seq} on: {error}") from error
            begin = None
        except ConflictError as error:
            database.count(f"watches-{error.reason}")
            if error.reason != "reopened" or error.last_seq != watched.end:
                raise Violation("watch", f"{name} ended with {error!r} at {error.last_seq}") from error
            begin = watched.end
        finally:
            made.close()


async def _take(node: Node, made: slate.Watch, watched: Watched, count: int) -> None:
    """Take so many changes, in steps some of which are cancelled."""
    rng = node.rng
    for _ in range(count):
        try:
            async with asyncio.timeout(rng.choice((None, None, 0.001, 0.2))):
                change = await anext(made)
        except TimeoutError:
            watched.end = made.last_seq
            continue
        except UnavailableError:
            continue
        watched.rows.append((change.seq, change.op, change.key, change.value))
        watched.end = made.last_seq
        if rng.random() < 0.2:
            await node.runtime.clock.sleep(rng.uniform(0, 0.5))


async def live_watched(seen: list[Watched], database: SimulatedDatabase, node: Node) -> None:
    """The whole life of a writer with watchers."""
    session = WatchSession(database, node)
    if not await session.open():
        check_quiet(node)
        return
    params = database.params
    watchers = [
        asyncio.create_task(_watched(database, node, session.db, seen, f"{node.name}/{number}"), name=f"watch {number}")
        for number in range(WATCHERS)
    ]
    tasks = [asyncio.create_task(session.work(params.rounds), name=f"work {n}") for n in range(params.tasks)]
    try:
        await asyncio.gather(*tasks)
        if params.faults == 0 and not session.has_ended:
            await _settled(session, database)
    finally:
        for task in [*tasks, *watchers]:
            task.cancel()
        await asyncio.gather(*tasks, *watchers, return_exceptions=True)
    _raise_violations(watchers)
    session.check_end()
    for name in ("lagged", "lost", "feeds", "delivered"):
        database.count(f"watch-{name}", int(session.db.metrics()[f"watch.{name}"]))
    if session.db.metrics()["watch.watchers"]:
        raise Violation("leak", f"{node.name} has watchers that nobody watches")
    await end(session)


async def _watched(
    database: SimulatedDatabase, node: Node, source: slate.Db | slate.DbReader, seen: list[Watched], name: str
) -> None:
    try:
        await watch(database, node, source, seen, name)
    except EXPECTED:
        database.count("watches-ended")


async def _settled(session: WatchSession, database: SimulatedDatabase) -> None:
    """A new watcher from the beginning of what is kept gets all of what was written."""
    try:
        await session.db.flush()
        durable = session.db.status().durable_seq
        async with asyncio.timeout(SETTLE_SECONDS):
            async with session.db.watch(from_seq=max(0, durable - 30)) as made:
                while made.last_seq < durable:
                    await anext(made)
        database.count("watches-settled")
    except (*EXPECTED, NotFoundError):
        return
    except TimeoutError:
        raise Violation("stuck", f"{session.node.name}: a watch has stood still at {made.last_seq}") from None


def _raise_violations(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def watch_reader(seen: list[Watched], database: SimulatedDatabase, node: Node) -> None:
    """A process that watches by a reader."""
    settings = database.params.settings(node.rng, None).replace(**chosen(node))
    try:
        async with await on(node.runtime).open_reader(
            database.store(node), name=database.name, metastore=database.factory(node), settings=settings
        ) as reader:
            tasks = [
                asyncio.create_task(_watched(database, node, reader, seen, f"{node.name}/{number}"))
                for number in range(2)
            ]
            while not database.over and reader.status().state == "open":  # noqa: ASYNC110 - of the world
                await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            _raise_violations(tasks)
    except (*EXPECTED, NotFoundError, ConfigError):  # of a database that is being created
        return
