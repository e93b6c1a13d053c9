"""A writer stopped by SIGSTOP in the middle of parallel flushes, and continued after another took over."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.integration.places import LOGS, STORES, make_place
from tests.integration.processes import ChildProcess
from tests.integration.test_kill import TASKS, acknowledged, check
from tests.integration.writer import rows_of, write_rows

POLL_MS = 300
FREEZES = 50
NAMES = {log: f"{log[0]}-{'wal' if log[1] else 'no-wal'}" for log in LOGS}


@pytest.mark.parametrize("log", LOGS, ids=NAMES.get)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.timeout(120)
async def test_a_zombie_acknowledges_nothing_its_successor_does_not_hold(
    store: str,
    log: tuple[str, bool],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    aws_environment: dict[str, str],
    slice_seed: int,
) -> None:
    endpoint = None if store == "local" else request.getfixturevalue("s3_endpoint")
    place = await make_place(store, log, tmp_path, endpoint, flush_interval_ms=1, flush_bytes=512)
    rng = random.Random(f"{slice_seed} {store} {log}")
    arguments = ["tests/integration/writer.py", *place.arguments(), "--tag", "a", "--tasks", str(TASKS), "--flights"]
    async with ChildProcess(arguments) as zombie:
        await zombie.wait_for_line("open")
        in_flight = await freeze_in_parallel_flushes(zombie, rng.randint(20, 200))
        assert in_flight > 1
        async with place.open() as successor:
            for number in range(20):
                await write_rows(successor, rows_of("b", 0, number))
            zombie.thaw()
            await zombie.wait_for_line(lambda line: line.startswith("closed"))
            acks = [line for line in zombie.received if line.startswith(("open", "ack"))]
            others = [line for line in zombie.received if not line.startswith(("open", "ack", "flights"))]
            assert all(line.startswith(("failed FencedError", "closed fenced FencedError")) for line in others), others
            await check(successor, "a", acknowledged(acks))
            await check(successor, "b", {0: 20})
            await zombie.send("put late")
            assert await zombie.wait_for_line("failed FencedError", start=len(zombie.received))
            assert await successor.get(b"late") is None
        async with place.open() as third:
            await check(third, "a", acknowledged(acks))
            await check(third, "b", {0: 20})


async def freeze_in_parallel_flushes(child: ChildProcess, lines: int) -> int:
    """Freeze ``child`` after that many lines, while several log objects are on their way; how many were.

    A number it printed is old by the time the signal comes, so the last one before it stood still counts; if that was
    no more than one, the child goes on for a while."""
    for _ in range(FREEZES):
        await child.wait_for_line(lambda line: flights_of(line) > 1, start=lines)
        await child.freeze()
        await all_read(child)
        told = [line for line in child.received if line.startswith("flights")]
        if (in_flight := flights_of(told[-1])) > 1:
            return in_flight
        lines = len(child.received)
        child.thaw()
    raise AssertionError(f"{FREEZES} times the writer was frozen, and never in parallel flushes")


async def all_read(frozen: ChildProcess) -> None:
    """What it said before it stood still has come: the loop has looked at its pipe several times in vain."""
    before = -1
    while before < len(frozen.received):
        before = len(frozen.received)
        for _ in range(5):
            await asyncio.sleep(0.005)


def flights_of(line: str) -> int:
    """Log objects on their way as a ``flights`` line tells; 0 for other lines."""
    word, *rest = line.split()
    return int(rest[0]) if word == "flights" else 0


IDLE_PLACES = [(store, LOGS[0]) for store in STORES if store != "local"] + [("local", log) for log in LOGS]


@pytest.mark.parametrize(("store", "log"), IDLE_PLACES, ids=lambda part: part if isinstance(part, str) else NAMES[part])
async def test_an_idle_zombie_closes_itself_within_one_poll(
    store: str,
    log: tuple[str, bool],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    aws_environment: dict[str, str],
) -> None:
    endpoint = None if store == "local" else request.getfixturevalue("s3_endpoint")
    place = await make_place(store, log, tmp_path, endpoint, manifest_poll_interval_ms=POLL_MS)
    async with ChildProcess(["tests/integration/writer.py", *place.arguments(), "--tasks", "0"]) as zombie:
        await zombie.wait_for_line("open")
        await zombie.freeze()
        async with place.open():
            zombie.thaw()
            polls_allowed = 10  # a loaded machine is slow, not wrong: the poll itself takes requests
            await zombie.wait_for_line("closed fenced FencedError", timeout=polls_allowed * POLL_MS / 1000 + 5)


@pytest.mark.timeout(240)
async def test_real_races_of_two_writers_have_one_survivor(
    tmp_path: Path, request: pytest.FixtureRequest, aws_environment: dict[str, str], full: bool, slice_seed: int
) -> None:
    """Two processes open at the same instant: in the end one holds the database, the other is fenced or refused."""
    rounds = 20 if full else 4
    for number in range(rounds):
        store = STORES[(slice_seed + number) % len(STORES)]
        log = LOGS[(slice_seed // 7 + number) % len(LOGS)]
        endpoint = None if store == "local" else request.getfixturevalue("s3_endpoint")
        place = await make_place(store, log, tmp_path / str(number), endpoint)
        arguments = ["tests/integration/writer.py", *place.arguments(), "--tasks", "2", "--pause", "0.01"]
        async with ChildProcess([*arguments, "--tag", "x"]) as x, ChildProcess([*arguments, "--tag", "y"]) as y:
            losers = await first_loser(x, y)
            assert len(losers) == 1, [x.received[-3:], y.received[-3:]]
            winner = x if losers == [y] else y
            before = len(winner.received)
            await winner.wait_for_line("ack", start=before)
            await x.kill()
            await y.kill()
        async with place.open() as db:
            for tag, child in (("x", x), ("y", y)):
                acks = [line for line in child.received if line.startswith(("open", "ack"))]
                counts = acknowledged(acks)
                await check(db, tag, {task: counts[task] for task in range(2)})


async def first_loser(*children: ChildProcess) -> list[ChildProcess]:
    """The children that are out, once at least one is and had time to say so."""

    def out(line: str) -> bool:
        return line.startswith(("closed fenced", "refused FencedError"))

    waits = {asyncio.create_task(child.wait_for_line(out)): child for child in children}
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
        return [waits[task] for task in done]
    finally:
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
