"""First figures: every measure on every engine, in paired rounds of one run, with ratios.

``scripts/bench --rows 20000 --rounds 3``. Prints a table and writes ``bench-results/compare.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.benchmarks.engines import ENGINES, Engine, Pair

KEY_BYTES = 16
VALUE_BYTES = 100
RESULTS = Path("bench-results")
Rates = dict[str, dict[str, list[float]]]


def make_rows(count: int, seed: int) -> list[Pair]:
    """Distinct random keys of 16 bytes with values of 100."""
    rng = random.Random(seed)
    return [(rng.randbytes(KEY_BYTES), rng.randbytes(VALUE_BYTES)) for _ in range(count)]


async def durable_puts(engine: Engine, rows: list[Pair], tasks: int) -> None:
    queue = iter(rows)

    async def work() -> None:
        for pair in queue:
            await engine.put_durable(pair)

    await asyncio.gather(*(work() for _ in range(tasks)))


async def measure(engine: Engine, rows: list[Pair], record: Callable[[str, int, float], None]) -> None:
    """All measures on one fresh database. Everything read is compared with what was written."""

    async def timed(name: str, count: int, work: Awaitable[object]) -> object:
        started = time.perf_counter()
        result = await work
        record(name, count, time.perf_counter() - started)
        return result

    alone, together = rows[:20], rows[20 : 20 + min(len(rows) // 4, 4096)]
    rest = rows[20 + len(together) :]
    await timed("put, in memory", len(rest), engine.put_in_memory(rest))
    await engine.settle()
    await timed("put, durable, 1 task", len(alone), durable_puts(engine, alone, 1))
    await timed("put, durable, 256 tasks", len(together), durable_puts(engine, together, 256))
    await engine.settle()
    sample = random.Random(1).sample(rows, min(len(rows), 5000))
    await engine.get_all([key for key, _ in sample])  # warm
    found = await timed("get, warm", len(sample), engine.get_all([key for key, _ in sample]))
    require(found == [value for _, value in sample], engine, "get")
    missing = [random.Random(2).randbytes(KEY_BYTES) for _ in range(2000)]
    found = await timed("get, missing key", len(missing), engine.get_all(missing))
    require(found == [None] * len(missing), engine, "get of missing keys")
    scanned = await timed("scan, rows", len(rows), engine.scan_rows())
    require(scanned == sorted(rows), engine, "scan")
    counted = await timed("scan, batches", len(rows), engine.scan_batches())
    require(counted == len(rows), engine, "scan in batches")


def require(truth: bool, engine: Engine, what: str) -> None:
    if not truth:
        raise SystemExit(f"{engine.name}: {what} gave a wrong answer")


async def run(rows: int, rounds: int) -> Rates:
    rates: Rates = {}
    turns = [(number, kind) for number in range(rounds) for kind in ENGINES[:: 1 if number % 2 else -1]]
    for number, kind in track(turns, description="rounds", transient=True):
        with tempfile.TemporaryDirectory() as folder:
            engine = await kind.start(folder)

            def record(name: str, count: int, seconds: float, engine: Engine = engine) -> None:
                rates.setdefault(name, {}).setdefault(engine.name, []).append(count / seconds)

            await measure(engine, make_rows(rows, number), record)
            await engine.stop()
    return rates


def show(rates: Rates, console: Console) -> None:
    ours, *peers = (kind.name for kind in ENGINES)
    table = Table(title=f"operations per second, medians ({platform.python_version()}, {os.cpu_count()} cores)")
    table.add_column("measure")
    table.add_column(ours, justify="right")
    for peer in peers:
        table.add_column(peer, justify="right")
        table.add_column(f"{ours} / {peer}", justify="right")
    for name, by_engine in rates.items():
        mine = statistics.median(by_engine[ours])
        cells = [name, f"{mine:,.0f}"]
        for peer in peers:
            theirs = statistics.median(by_engine[peer])
            ratios = [a / b for a, b in zip(by_engine[ours], by_engine[peer], strict=True)]
            cells += [f"{theirs:,.0f}", f"{statistics.median(ratios):,.2f}"]
        table.add_row(*cells)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rates = asyncio.run(run(arguments.rows, arguments.rounds))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "compare.json").write_text(json.dumps(rates, indent=1))
    show(rates, Console(width=120))


if __name__ == "__main__":
    main()
