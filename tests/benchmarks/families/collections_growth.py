"""How the cost of a collection grows with its updates: requests, rows rewritten, metadata; and of an idle one."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from slate_async.collections.codec.version import encode_version
from slate_async.collections.controller.controller import Controller
from slate_async.collections.controller.tasks import LOOK_POLLS
from slate_async.runtime.system import SystemClock
from slate_async.settings.collections import CollectionSettings
from tests.benchmarks.collections.columns import SCHEMA
from tests.benchmarks.collections.lake import Bench, bench
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Samples, Turn, require
from tests.benchmarks.slow_store import SlowStore

TINY = 2_000
SIZES = (10**4, 10**5, 10**6, 10**7)
APPEND_ROWS = 10_000
TOGETHER = 8
"""Appends that the controller absorbs at once."""
FEWEST_ROUNDS = 16
"""Small collections are appended in smaller batches, so that their first round is one of several."""
LISTING_ETC = 4
"""Requests of an absorb beside its GETs: a listing, the batch, the version, and the boundary of what was deleted."""
BOUNDED = 5_000
"""Different data of the collection that stays small."""
VERSION, REWRITTEN, REQUESTS = "largest version", "rows rewritten per row", "requests of the controller per append"
NEAR = "requests of a controller beside the writer, per append"
SMALL = "rows rewritten per row, since keeps up, 5,000 different data"
IDLE, IDLE_WRITES = "idle, requests a poll_interval_ms", "idle, writes a poll_interval_ms"
BOUND = "bound"
FEWEST = "GET, list, 2 PUTs, boundary"
UNITS = {VERSION: "bytes", REWRITTEN: "", REQUESTS: ""}
HURRY = 200
IDLE_AFTER_S, IDLE_S = 120.0, 1200.0
"""By the hurried clock: after its claim and the garbage of the one before; how long it is watched."""


def name_of(measure: str, count: int) -> str:
    return f"{measure}, {count:,} updates"


def batch_of(rng: np.random.Generator, rows: int, time: int, different: int) -> pa.RecordBatch:
    """Additions of ``rows`` data of 44 bytes, of ``different`` ones, at one time."""
    data = [b"user:%039d" % number for number in rng.integers(0, different, rows).tolist()]
    times, diffs = np.full(rows, time, np.uint64), np.ones(rows, np.int64)
    return pa.RecordBatch.from_arrays([pa.array(data), pa.array(times), pa.array(diffs)], schema=SCHEMA.arrow)


async def take_in(controller: Controller, number: int) -> None:
    """What a controller does by itself with what is pending: it looks at the holds now and then."""
    rounds = controller._rounds
    if number % LOOK_POLLS:
        await rounds.absorb(await rounds.pending(controller._tasks._head().upper))
    else:
        await rounds.round(collecting=False)  # garbage is collected once a minute


async def filled(
    turn: Turn, lake: Bench, store: SlowStore, controller: Controller, count: int, different: int, writing: Bench
) -> tuple[int, Counter[str]]:
    """Append ``count`` updates in the process ``writing``; `TOGETHER` are taken in at once. Bytes of the largest
    version, and the controller's requests."""
    rng, writer = np.random.default_rng([turn.number, count]), await writing.writer()
    reader, largest = await writing.reader(), 0
    requests: Counter[str] = Counter()
    rows = min(APPEND_ROWS, max(count // (FEWEST_ROUNDS * TOGETHER), 1))
    appends = -(-count // rows)
    for time in range(appends):
        await writer.append(batch_of(rng, rows, time, different), upper=time + 1)
        if time % TOGETHER == TOGETHER - 1 or time == appends - 1:
            await reader.downgrade_since(time)
            store.forget()
            await take_in(controller, time // TOGETHER)
            requests += store.counts
            await controller.merge()
            largest = max(largest, len(encode_version(await lake.stores.versions.load())))
    await reader.expire()
    return largest, requests


async def measure(turn: Turn, count: int) -> dict[str, float]:
    """Record what ``count`` updates cost; each as a multiple of its bound."""
    store = SlowStore(0.0)
    async with bench(store) as lake, bench(store) as writing:
        controller = await lake.controller()
        largest, requests = await filled(turn, lake, store, controller, count, 10 * count, writing)
        rounds, merges = controller.counts
        rewritten = (merges.rows_in + rounds.rows) / rounds.rows
        require(rounds.rows >= count, OURS, "a controller")
        log, shares = math.log2(count), dict[str, float]()
        for measure, found, bound in (
            (VERSION, largest, 256 * (2 * log + 8)),
            (REWRITTEN, rewritten, 2 * log),
            (REQUESTS, sum(requests.values()) / rounds.appends, 1 + 3 / TOGETHER),
        ):
            turn.record(name_of(measure, count), OURS, found, UNITS[measure])
            turn.record(name_of(measure, count), BOUND, bound, UNITS[measure])
            shares[measure] = found / bound
        turn.record(name_of(REQUESTS, count), FEWEST, 1 + LISTING_ETC / TOGETHER, "")
        if count == turn.plan.choose(TINY, SIZES[2], SIZES[3]):
            await idle(turn, store, controller)
    return shares


class HurriedClock(SystemClock):
    """One on which `HURRY` seconds pass in a second."""

    def now_ms(self) -> int:
        return super().now_ms() * HURRY

    def monotonic(self) -> float:
        return super().monotonic() * HURRY

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / HURRY)


async def idle(turn: Turn, store: SlowStore, controller: Controller) -> None:
    """What a controller by itself asks of a collection at rest: looks for appends, at holds, for garbage."""
    await controller.settle()
    clock = HurriedClock()
    settings = CollectionSettings()
    async with bench(store, settings=settings, clock=clock) as lake:
        await lake.controller(background=True)
        await clock.sleep(IDLE_AFTER_S)
        store.forget()
        began = clock.monotonic()
        await clock.sleep(turn.plan.choose(60, IDLE_S, IDLE_S))
        polls = (clock.monotonic() - began) * 1000 / settings.poll_interval_ms
        found = Counter(store.counts)
    turn.record(IDLE, OURS, sum(found.values()) / polls, "")
    turn.record(IDLE_WRITES, OURS, (found["put"] + found["delete"]) / polls, "")


async def bounded(turn: Turn) -> None:
    """A set of data that stays as large as it is, since a step behind."""
    count = turn.plan.choose(TINY, SIZES[1], SIZES[2])
    store = SlowStore(0.0)
    async with bench(store) as lake:
        controller = await lake.controller()
        _, requests = await filled(turn, lake, store, controller, count, BOUNDED, lake)
        rounds, merges = controller.counts
        turn.record(SMALL, OURS, (merges.rows_in + rounds.rows) / rounds.rows, "")
        turn.record(NEAR, OURS, sum(requests.values()) / rounds.appends, "")
        turn.record(NEAR, BOUND, 1 + 3 / TOGETHER, "")


async def one_round(turn: Turn) -> None:
    shares = [await measure(turn, count) for count in turn.plan.choose((TINY,), SIZES[:3], SIZES)]
    for found in UNITS:
        turn.record(worst(found), OURS, max(share[found] for share in shares), "")
    await bounded(turn)


def plot(samples: Samples) -> Any:
    """A log-log chart for each measure, with its bound."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(UNITS), figsize=(12, 4), layout="constrained")
    for axis, measure in zip(axes, UNITS, strict=True):
        for subject, colour in ((OURS, "#c2410c"), (BOUND, "#94a3b8")):
            known = [size for size in (TINY, *SIZES) if samples.has(name_of(measure, size), subject)]
            values = [samples.median(name_of(measure, size), subject) for size in known]
            if known:
                axis.loglog(known, values, marker="o", label=subject, color=colour)
        axis.set_title(f"{measure} ({UNITS[measure]})" if UNITS[measure] else measure, fontsize=9)
        axis.set_xlabel("updates", fontsize=8)
    axes[0].legend(fontsize=8)
    return figure


def worst(measure: str) -> str:
    """The largest share of its bound, of all sizes."""
    return f"{measure}, as a multiple of its bound"


FAMILY = Family(
    "collections-growth",
    "Collections: how cost grows",
    (
        *(Goal(7, worst(measure), 1, most=True) for measure in UNITS),
        Goal(7, NEAR, 1, (NEAR, BOUND), most=True),
        Goal(7, SMALL, 4, most=True),
        Goal(7, IDLE, 1, most=True),
        Goal(7, IDLE_WRITES, 0, most=True),
    ),
    one_round,
    notes=(
        f"Appends of {APPEND_ROWS:,} updates of ever new data, or {FEWEST_ROUNDS * TOGETHER} smaller ones;"
        f" {TOGETHER} are absorbed together. The store takes no time.",
        "Rewritten: what the controller wrote into merged batches, the first time included.",
        "Requests: of a controller that works by itself, with one reader; garbage and merges left out. A GET for each"
        " append, which one in the writer's process does not need. For all that is absorbed together a listing, two"
        " PUTs and the boundary; each fourth time it looks at the head and the holds as well.",
    ),
    plot=plot,
    most_rounds=1,
)
