"""What an open database costs in requests: idle, and with durable writes that come at random, by list prices."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence

from slate_async.objectstore.costs import MONTH_S, MonthlyRequests
from tests.benchmarks.engines import SlateAsync, SlateDB, taking_turns
from tests.benchmarks.engines.protocol import OnS3
from tests.benchmarks.family import Family
from tests.benchmarks.rounds import Turn
from tests.benchmarks.rows import make_rows
from tests.benchmarks.slow_s3 import slow_s3

BUCKET = "bench"
DELAY_S = 0.03
RATES = (0, 5, 200, 5_000)
SETTLE_S = 2.0
"""After the opening, before counting."""


def of_rate(rate: int) -> str:
    """What is measured, in words."""
    return f"{rate:,} durable writes/s" if rate else "idle"


def of_month(counts: Counter[str], seconds: float) -> MonthlyRequests:
    """A month that goes on as those seconds did, by the server's counts of methods."""
    share = MONTH_S / seconds
    gets = counts["GET"] - counts["LIST"] + counts["HEAD"]
    return MonthlyRequests(round(counts["PUT"] * share), round(gets * share), round(counts["LIST"] * share))


async def put_at_random(engine: OnS3, rate: int, seconds: float, seed: int) -> None:
    """Writes that nobody waits for before the next comes, ``rate`` a second on average."""
    began = time.perf_counter()
    if not rate:
        await asyncio.sleep(seconds)
        return
    rng = random.Random(seed)
    rows = iter(make_rows(round(rate * seconds * 1.5) + 100, seed))
    due = 0.0
    puts: set[asyncio.Task[None]] = set()
    while (due := due + rng.expovariate(rate)) < seconds:
        wait = began + due - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(engine.put_durable(next(rows)))
        puts.add(task)
        task.add_done_callback(puts.discard)
    await asyncio.gather(*puts)


async def one_round(turn: Turn) -> None:
    seconds = turn.plan.choose(0.2, 20.0, 60.0)
    with slow_s3() as s3:
        s3.make_bucket(BUCKET)
        s3.answer_after(turn.plan.choose(0.0, DELAY_S, DELAY_S))
        kinds: Sequence[type[OnS3]] = taking_turns(turn, SlateAsync, SlateDB)
        for kind in kinds:
            for rate in RATES:
                engine = await kind.start_on_s3(s3.url, BUCKET, f"{kind.name}-{rate}")
                try:
                    await asyncio.sleep(turn.plan.choose(0.0, SETTLE_S, SETTLE_S))
                    before, began = s3.counts(), time.perf_counter()
                    await put_at_random(engine, rate, seconds, rate + turn.number)
                    month = of_month(s3.counts() - before, time.perf_counter() - began)
                finally:
                    await engine.stop()
                for what, count in (("PUT", month.puts), ("GET", month.gets), ("LIST", month.lists)):
                    turn.record(f"{of_rate(rate)}: {what} a month", kind.name, count, "requests")
                turn.record(f"{of_rate(rate)}: a month", kind.name, month.dollars(), "dollars")


FAMILY = Family(
    "cost",
    "Requests of an open database, S3 that takes 30 ms",
    (),
    one_round,
    notes=(
        "List prices of Amazon S3 Standard, us-east-1 (`objectstore.costs.RequestPrices`); a month of 30 days that goes"
        " on as the seconds measured did. Bytes stored and moved come on top.",
        "slatedb: default settings. Compactions are in what is counted as far as they ran meanwhile.",
    ),
)
