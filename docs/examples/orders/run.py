"""Orders, end to end: a shop, two relays, a view that is killed and started again, and the proof that it is right.

    python docs/examples/orders/run.py --seconds 20

README.md, beside this file, explains it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import places
from check import equal_at_every_time

import slate_async as slate

HERE = Path(__file__).resolve().parent


class Processes:
    """Those that run now, by name.

    They are started and ended without an await, so that nothing comes between a process and its entry here. Each has a
    session of its own: a Ctrl-C in the terminal is for this process, which ends the others."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.killed = Counter[str]()

    def start(self, name: str, script: str, *arguments: str) -> None:
        """A process of its own, which writes what it says to a file."""
        command = [sys.executable, str(HERE / script), self.url, *arguments]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def begin(self, name: str) -> None:
        """A relay, or the view."""
        if name == "view":
            self.start(name, "view.py")
        else:
            self.start(name, "relays.py", name)

    def check(self) -> None:
        """Raise RuntimeError if one has failed."""
        for name, process in self.running.items():
            if process.poll():
                raise RuntimeError(f"{name} has failed; its log says why")

    def kill(self, name: str) -> None:
        """SIGKILL: it finishes nothing."""
        self.check()
        process = self.running[name]
        process.kill()
        process.wait()

    def end(self) -> None:
        """All of them."""
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()


async def disturb(processes: Processes, rng: random.Random) -> None:
    """Kill the view, then one of the view and the relays at random, and start it again each time."""
    name = "view"
    while True:
        await asyncio.sleep(rng.uniform(1.0, 3.0))
        processes.kill(name)
        processes.killed[name] += 1
        processes.begin(name)
        name = rng.choice(("view", "view", "relay-a", "relay-b"))


async def shown(revenue: slate.collections.ReadHandle, as_of: int) -> None:
    """The best customers at a time."""
    async with await revenue.snapshot(as_of) as snapshot:
        rows = sorted((await snapshot.to_arrow()).to_pylist(), key=lambda row: -row["cents"])
    best = ", ".join(f"{row['name']} {row['cents'] / 100:.2f} ({row['orders']})" for row in rows[:3])
    print(f"at {as_of}: {len(rows)} customers; {best}", flush=True)


async def watch(revenue: slate.collections.ReadHandle) -> None:
    """Print the view now and then."""
    async with revenue.listen(start=0) as listener:
        async for delta in listener:
            if delta.updates.num_rows:
                await shown(revenue, delta.upper.elements[0][0] - 1)
                await asyncio.sleep(2)


async def run(url: str, seconds: float, seed: int, folder: Path, *, spark: bool) -> None:
    """The whole of it. Raises AssertionError if the view was wrong at any time."""
    processes, closing, rng = Processes(url, folder), folder / "closing", random.Random(seed)
    async with slate.open_collections(places.lake(url)) as lake:
        data = slate.relay_schema("upsert")
        orders = await lake.create(places.ORDERS, data=data, appends="compare")
        customers = await lake.create(places.CUSTOMERS, data=data, appends="compare")
        revenue = await lake.create(places.REVENUE, data=places.REVENUE_ROWS, appends="compare")
        try:
            processes.start("shop", "shop.py", str(seed), str(closing))
            while not await is_open(url):
                processes.check()
                await asyncio.sleep(0.1)
            for name in ("relay-a", "relay-b", "view"):
                processes.begin(name)
            background = [asyncio.create_task(work) for work in (disturb(processes, rng), watch(revenue))]
            await asyncio.wait(background, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            closing.touch()
            await asyncio.to_thread(processes.running["shop"].wait, 60)
            last = int(closing.read_text())
            async with asyncio.timeout(120):
                await shown(revenue, last)  # which waits until the view is there
            for task in background:
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    task.result()
            processes.end()
            readers = {places.ORDERS: orders, places.CUSTOMERS: customers, places.REVENUE: revenue}
            times = await equal_at_every_time(readers, last + 1)
            if spark:
                processes.start("spark", "spark_view.py", str(last))
                if await asyncio.to_thread(processes.running["spark"].wait):
                    raise RuntimeError("Spark computed another view, or failed")
                said = (folder / "spark.log").read_text().splitlines()
                print(*(line for line in said if line.startswith("Spark computes")))
        finally:
            processes.end()
    killed, views = processes.killed.total(), processes.killed["view"]
    print(f"{killed} processes were killed, {views} of them the view; it equals a recomputation at all {times} times")


async def is_open(url: str) -> bool:
    """Whether the shop has made its database."""
    try:
        async with slate.open_reader(places.database(url), pin=False):
            return True
    except slate.NotFoundError:
        return False


async def until_stopped(work: Coroutine[Any, Any, None]) -> int:
    """The exit code: 0 when ``work`` is done, or that of the signal by which it was told to stop. It is told as often
    as signals come, and ends its processes before it waits for anything."""
    task, signals = asyncio.ensure_future(work), list[int]()

    def stop(number: int) -> None:
        signals.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as in the background
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
    await asyncio.wait([task])
    if not signals:
        task.result()
    return 128 + signals[0] if signals else 0


def main() -> None:
    """Arguments, and a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="how long the shop is open")
    parser.add_argument("--seed", type=int, default=1, help="of what happens, and of who is killed when")
    parser.add_argument("--url", help="where everything is stored; a folder that is removed afterwards if left out")
    parser.add_argument("--spark", action="store_true", help="compute the view with Spark, too, which needs Java")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orders-") as folder:
        url = asked.url or Path(folder).as_uri()
        try:
            code = asyncio.run(until_stopped(run(url, asked.seconds, asked.seed, Path(folder), spark=asked.spark)))
        except BaseException:
            for log in sorted(Path(folder).glob("*.log")):
                print(f"---- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
    sys.exit(code)


if __name__ == "__main__":
    main()
