"""Load a real data set from concurrent tasks, SIGKILL the writer halfway, take over from a second process, check.

Three processes: this one watches and judges; ``--role load`` writes and prints each acknowledgement; ``--role
takeover`` opens the database after the kill, checks every acknowledged record, loads the rest and scans it all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import airportsdata
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import slate_async as slate

TASKS = 64
KILL_AT = 0.5
PROCESS_TIMEOUT_S = 300


def records() -> list[tuple[bytes, bytes]]:
    """Every airport as (ICAO code, JSON), in the order of the codes."""
    airports = airportsdata.load("ICAO")
    return [(code.encode(), json.dumps(airports[code], sort_keys=True).encode()) for code in sorted(airports)]


async def load_all(db: slate.Db, rows: list[tuple[bytes, bytes]], *, tell: bool) -> float:
    """Put every row from `TASKS` tasks; with ``tell`` print each row's index once it is durable. Seconds taken."""
    queue = iter(enumerate(rows))
    started = time.perf_counter()

    async def work() -> None:
        for index, (key, value) in queue:
            await db.put(key, value)
            if tell:
                sys.stdout.write(f"{index}\n")
                sys.stdout.flush()

    async with asyncio.TaskGroup() as group:
        for _ in range(TASKS):
            group.create_task(work())
    return time.perf_counter() - started


async def role_load(path: str) -> None:
    async with slate.open(path) as db:
        await load_all(db, records(), tell=True)


async def role_takeover(path: str) -> None:
    """Reads the acknowledged indexes from standard input; prints a JSON report."""
    acknowledged = [int(line) for line in sys.stdin]
    rows = records()
    started = time.perf_counter()
    async with slate.open(path, create=False) as db:
        opened_s = time.perf_counter() - started
        started = time.perf_counter()
        found = await db.get_many([rows[index][0] for index in acknowledged])
        read_s = time.perf_counter() - started
        lost = sum(value != rows[index][1] for index, value in zip(acknowledged, found, strict=True))
        known = set(acknowledged)
        rest = [row for index, row in enumerate(rows) if index not in known]
        rest_s = await load_all(db, rest, tell=False)
        started = time.perf_counter()
        scanned = [(key, value) async for key, value in db.scan()]
        scan_s = time.perf_counter() - started
        report = {
            "opened_s": opened_s,
            "lost": lost,
            "read": len(acknowledged),
            "read_s": read_s,
            "rest": len(rest),
            "rest_s": rest_s,
            "scanned": len(scanned),
            "scan_s": scan_s,
            "equal": scanned == rows,
            "epoch": db.status().epoch,
        }
    print(json.dumps(report))


def start(role: str, path: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--role", role, "--path", path]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def load_and_kill(path: str, total: int, console: Console) -> tuple[list[int], float]:
    """Run the loader until half of the records are acknowledged, then SIGKILL it."""
    process = start("load", path)
    assert process.stdout is not None
    acknowledged: list[int] = []
    started = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("loading", total=total)
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # the kill cut it: not a whole acknowledgement
            acknowledged.append(int(line))
            if len(acknowledged) % 256 == 0:
                progress.update(bar, completed=len(acknowledged))
            if len(acknowledged) == int(total * KILL_AT):
                process.send_signal(signal.SIGKILL)
        progress.update(bar, completed=len(acknowledged), description="killed")
    seconds = time.perf_counter() - started
    code = process.wait(timeout=PROCESS_TIMEOUT_S)
    if code != -signal.SIGKILL:
        raise SystemExit(f"the loading process ended by itself with exit code {code}")
    return acknowledged, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", default="demo-data", help="URL or folder of the database (default: ./demo-data)")
    parser.add_argument("--role", choices=("watch", "load", "takeover"), default="watch", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role != "watch":
        asyncio.run((role_load if arguments.role == "load" else role_takeover)(arguments.path))
        return 0
    if arguments.path == "demo-data" and Path("demo-data").exists():
        shutil.rmtree("demo-data")
    console = Console()
    total = len(records())
    console.print(f"Loading {total:,} airports into [bold]{arguments.path}[/] from {TASKS} tasks.")
    acknowledged, loaded_s = load_and_kill(arguments.path, total, console)
    console.print(f"Killed the writer with SIGKILL after {len(acknowledged):,} acknowledged writes. Taking over.")
    process = start("takeover", arguments.path)
    output, _ = process.communicate("".join(f"{index}\n" for index in acknowledged), timeout=PROCESS_TIMEOUT_S)
    if process.returncode != 0:
        raise SystemExit(f"the second process failed with exit code {process.returncode}")
    return summary(json.loads(output), len(acknowledged), loaded_s, console)


def summary(report: dict[str, float], acknowledged: int, loaded_s: float, console: Console) -> int:
    table = Table(title="What happened")
    table.add_column("step")
    for heading in ("records", "seconds", "records/s"):
        table.add_column(heading, justify="right")

    def row(step: str, count: float, seconds: float) -> None:
        table.add_row(step, f"{count:,.0f}", f"{seconds:.2f}", f"{count / max(seconds, 1e-9):,.0f}")

    row("durable puts before the kill (start of process included)", acknowledged, loaded_s)
    table.add_row("second process opens: claim, fence, replay", "", f"{report['opened_s']:.2f}", "")
    row("reading back what was acknowledged", report["read"], report["read_s"])
    row("durable puts of the rest", report["rest"], report["rest_s"])
    row("scan of everything", report["scanned"], report["scan_s"])
    console.print(table)
    good = report["lost"] == 0 and report["equal"]
    verdict = "[green]every one is there[/]" if report["lost"] == 0 else f"[red]{report['lost']} are LOST[/]"
    console.print(f"Of {acknowledged:,} acknowledged records {verdict}.")
    console.print(f"The scan equals the data set: {report['equal']}.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
