"""How the cost of everything grows with the number of rows: put, flush, compaction, get, scan, open."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.benchmarks.engines import Rocks, SlateAsync, SlateDB, taking_turns
from tests.benchmarks.engines.protocol import Compacts, Engine, RowScans
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS
from tests.benchmarks.rounds import Samples, Turn, Watch, folder, require, stopwatch
from tests.benchmarks.rows import Pair, make_rows

TINY = 100
SIZES = (10**4, 10**5, 10**6, 10**7)
SLATEDB_ROWS = 10**5
"""It puts about 10,000 rows a second."""
PART_ROWS = 10**4
GETS, SCANNED = 5_000, 100_000
SAMPLED_PARTS = 50
PUT, FLUSH, COMPACT, GET, SCAN, OPEN = "put", "flush", "compaction", "get", "scan", "open"
UNITS = {PUT: "rows/s", FLUSH: "s", COMPACT: "s", GET: "rows/s", SCAN: "rows/s", OPEN: "s"}


def part(turn: Turn, count: int, number: int) -> list[Pair]:
    """Some of ``count`` rows, the same at each call."""
    at = number * PART_ROWS
    return make_rows(min(PART_ROWS, count - at), turn.number * 10**9 + at)


def parts(turn: Turn, count: int) -> Iterator[list[Pair]]:
    """All rows, generated anew for each pass and never kept together."""
    return (part(turn, count, number) for number in range(-(-count // PART_ROWS)))


def sample(turn: Turn, count: int, gets: int) -> list[Pair]:
    """Some rows of some parts, which lie all over the keys as all rows do."""
    rng = random.Random(turn.number)
    numbers = range(-(-count // PART_ROWS))
    chosen = rng.sample(numbers, min(SAMPLED_PARTS, len(numbers)))
    each = gets // len(chosen)
    found: list[Pair] = []
    for number in chosen:
        rows = part(turn, count, number)
        found += rng.sample(rows, min(each, len(rows)))
    rng.shuffle(found)
    return found


def name_of(measure: str, count: int) -> str:
    return f"{measure}, {count:,} rows"


async def measure(turn: Turn, kind: type[Engine], count: int, rows: list[Pair]) -> None:
    """One engine at one size; ``rows`` are read."""

    def took(measure: str, watch: Watch) -> None:
        turn.record(name_of(measure, count), kind.name, watch.seconds[turn.plan.clock], "s")

    with folder() as path:
        engine = await kind.start(path)
        seconds = 0.0
        for rows_of_part in parts(turn, count):
            with stopwatch() as watch:
                await engine.put_all(rows_of_part)
            seconds += watch.seconds[turn.plan.clock]
        turn.record(name_of(PUT, count), kind.name, count / seconds)
        with stopwatch() as watch:
            await engine.flush()
        took(FLUSH, watch)
        if isinstance(engine, Compacts):
            with stopwatch() as watch:
                await engine.compact()
            took(COMPACT, watch)
        await engine.stop()
        with stopwatch() as watch:
            engine = await kind.start(path)
        took(OPEN, watch)
        await measure_reads(turn, engine, count, rows)
        await engine.stop()


async def measure_reads(turn: Turn, engine: Engine, count: int, rows: list[Pair]) -> None:
    """Gets all over the database, for the second time, then a scan of its beginning."""
    keys = [key for key, _ in rows]
    await engine.get_all(keys)
    with turn.timed(name_of(GET, count), engine.name, len(rows)):
        found = await engine.get_all(keys)
    require(found == [value for _, value in rows], engine.name, f"get of {count} rows")
    assert isinstance(engine, RowScans)
    limit = min(count, SCANNED)
    with turn.timed(name_of(SCAN, count), engine.name, limit):
        (scanned,) = await engine.scan_short([b"\0"], limit)
    require(len(scanned) == limit and scanned == sorted(scanned), engine.name, f"scan of {count} rows")


async def one_round(turn: Turn) -> None:
    for count in turn.plan.choose((TINY,), SIZES[:3], SIZES):
        rows = sample(turn, count, GETS)
        for kind in taking_turns(turn, SlateAsync, SlateDB, Rocks):
            if kind is not SlateDB or count <= SLATEDB_ROWS:
                await measure(turn, kind, count, rows)


def plot(samples: Samples) -> Any:
    """A small log-log chart for each measure."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(11, 6), layout="constrained")
    for axis, measure in zip(axes.flat, UNITS, strict=True):
        for subject in dict.fromkeys(subject for found in samples.found.values() for subject in found):
            known = [size for size in (TINY, *SIZES) if samples.has(name_of(measure, size), subject)]
            values = [samples.median(name_of(measure, size), subject) for size in known]
            colour = {"color": "#c2410c"} if subject == OURS else {}
            axis.loglog(known, values, marker="o", label=subject, **colour)
        axis.set_title(f"{measure} ({UNITS[measure]})", fontsize=9)
        axis.set_xlabel("rows", fontsize=8)
    axes.flat[0].legend(fontsize=8)
    return figure


FAMILY = Family(
    "growth",
    "How cost grows",
    (),
    one_round,
    notes=(
        f"get: {GETS:,} random rows, a second time; scan: the first {SCANNED:,} rows; both after opening anew.",
        "A million rows are more than the block cache of 64 MiB holds: most gets of slate_async then read and decode a"
        " block of 32 KiB again, from the operating system's cache, where rocksdict finds its own of 4 KiB.",
        "compaction: of everything into one run; of rocksdict often one file that is only moved.",
        "slatedb compacts by itself, and is left out above 100,000 rows.",
    ),
    plot=plot,
    most_rounds=1,
)
