"""What benchmarks measure of the machine: memory of a process, lag of an event loop; and where results go."""

from __future__ import annotations

import asyncio
import json
import os
import platform
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

RESULTS = Path("bench-results")
STEP_S = 0.001


@dataclass(frozen=True)
class Percentiles:
    """How a number of times are spread, in milliseconds."""

    p50: float
    p99: float
    most: float

    def __str__(self) -> str:
        return f"p50 {self.p50:.1f}, p99 {self.p99:.1f}, at most {self.most:.1f} ms"


def percentiles(found: list[float]) -> Percentiles:
    """The middle, the last hundredth and the worst of some times in milliseconds."""
    ordered = sorted(found)
    return Percentiles(ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1])


@asynccontextmanager
async def watched_loop() -> AsyncIterator[list[float]]:
    """The lag of the loop, looked at every `STEP_S`, while the context lasts."""
    found: list[float] = []

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        while True:
            asked = loop.time() + STEP_S
            await asyncio.sleep(STEP_S)
            found.append(1000 * (loop.time() - asked))

    watcher = asyncio.create_task(watch())
    try:
        yield found
    finally:
        watcher.cancel()


@asynccontextmanager
async def watched_process() -> AsyncIterator[list[float]]:
    """The lag of the loop of another process that does nothing else, known once the context has ended: how late this
    machine is by itself."""
    found: list[float] = []
    ours, its = Pipe()
    process = get_context("spawn").Process(target=_watch_until_told, args=(its,))
    process.start()
    its.close()  # so that nobody waits for a process that has ended
    try:
        await asyncio.to_thread(ours.recv)  # it has begun
        yield found
        ours.send(None)
        found += await asyncio.to_thread(ours.recv)
    finally:
        process.kill()
        await asyncio.to_thread(process.join)


def _watch_until_told(told: Connection) -> None:
    async def watch() -> list[float]:
        async with watched_loop() as found:
            told.send(None)
            await asyncio.to_thread(told.recv)
        return found

    told.send(asyncio.run(watch()))


def peak_mib() -> float:
    """The highest resident memory of this process since it was executed, whatever its parent's was (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def resident_bytes() -> int:
    """Memory of this process that is in use now (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def tree_cpu_s() -> float:
    """Processor time so far, in seconds, of this process and of all below it that are alive (Linux)."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            process = int(path.parent.name)
            parents[process], ticks[process] = int(fields[1]), int(fields[11]) + int(fields[12])

    def ours(process: int) -> bool:
        while process not in (0, os.getpid()):
            process = parents.get(process, 0)
        return process != 0

    return sum(spent for process, spent in ticks.items() if ours(process)) / os.sysconf("SC_CLK_TCK")


def fresh_process() -> ProcessPoolExecutor:
    """A process that has done nothing yet, for one piece of work."""
    return ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))


def about() -> dict[str, Any]:
    """This machine, and how busy others keep it."""
    return {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}


def write_results(name: str, results: object) -> Path:
    """Write ``bench-results/NAME.json``."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": about(), "results": results}, indent=1))
    return path
