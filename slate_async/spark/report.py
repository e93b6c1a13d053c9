"""Statistics as a picture. Needs matplotlib: the extra ``plot``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from slate_async.errors import InvalidError
from slate_async.spark.statistics_frame import COUNTS, HISTOGRAMS

TITLES = {
    "key_sizes": ("keys", "bytes"),
    "value_sizes": ("values", "bytes"),
    "ttls": ("lives of rows that expire", "seconds"),
}
LIVE, DEAD = "#c2410c", "#94a3b8"


def totals(statistics: DataFrame) -> dict[str, Any]:
    """The sums over all ranges: numbers, and histograms as lists."""
    rows = statistics.collect()
    summed: dict[str, Any] = {name: sum(row[name] for row in rows) for name in COUNTS}
    for name in HISTOGRAMS:
        summed[name] = [sum(counts) for counts in zip(*(row[name] for row in rows), strict=True)]
    return summed


def bucket_names(count: int) -> list[str]:
    """What the first ``count`` buckets of a histogram hold: ``0``, ``1``, ``2-3``, ``4-7`` …"""
    ends = [(1 << bucket >> 1, (1 << bucket) - 1) for bucket in range(count)]
    return [_short(low) if low >= high else f"{_short(low)}-{_short(high)}" for low, high in ends]


def draw_report(statistics: DataFrame, file: str | Path, *, title: str = "") -> Path:
    """Draw what `statistics` gave as a PNG ``file``: rows of each range, live and not, and the three histograms.

    Raises `InvalidError` where matplotlib is not installed."""
    rows, summed = statistics.collect(), totals(statistics)
    try:
        backend, figures = import_module("matplotlib.backends.backend_agg"), import_module("matplotlib.figure")
    except ImportError as error:
        raise InvalidError('the report needs matplotlib: pip install "slate-async[spark,plot]"') from error
    figure = figures.Figure(figsize=(11, 7), layout="constrained")
    backend.FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    _ranges(axes[0][0], rows)
    for axis, name in zip((axes[0][1], axes[1][0], axes[1][1]), HISTOGRAMS, strict=True):
        _histogram(axis, name, summed[name])
    share = summed["tombstones"] / summed["versions"] if summed["versions"] else 0
    said = f"{summed['live']:,} live rows, {summed['versions']:,} versions, {share:.1%} of them tombstones"
    figure.suptitle(f"{title}: {said}" if title else said)
    path = Path(file)
    figure.savefig(path, format="png", dpi=110)
    return path


def _ranges(axis: Any, rows: Sequence[Any]) -> None:
    """Versions of each range, from the bottom: live, tombstones, the rest."""
    numbers, below = [row.range for row in rows], [0] * len(rows)
    layers = {
        "live": (LIVE, [row.live for row in rows]),
        "tombstones": ("#1e293b", [row.tombstones for row in rows]),
        "superseded or expired": (DEAD, [row.versions - row.live - row.tombstones for row in rows]),
    }
    for label, (colour, heights) in layers.items():
        axis.bar(numbers, heights, bottom=below, color=colour, label=label, width=1.0)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axis.set(title="versions by range of keys", xlabel="range")
    if len(rows) > 1:
        axis.xaxis.get_major_locator().set_params(integer=True)
    else:
        axis.set_xticks(numbers)  # of less than two whole numbers the locator makes fractions
    axis.legend(fontsize=8)


def _histogram(axis: Any, name: str, counts: Sequence[int]) -> None:
    what, unit = TITLES[name]
    axis.set(title=f"{what}, {unit}", ylabel="live rows")
    used = [bucket for bucket, count in enumerate(counts) if count]
    if not used:
        axis.set(xticks=[], yticks=[])
        axis.text(0.5, 0.5, "none", transform=axis.transAxes, ha="center", va="center")
        return
    shown = range(used[0], used[-1] + 1)
    axis.bar(shown, [counts[bucket] for bucket in shown], color=LIVE)
    axis.set_xticks(shown, bucket_names(used[-1] + 1)[used[0] :], rotation=45, ha="right", fontsize=8)


def _short(number: int) -> str:
    for unit, size in (("G", 1 << 30), ("M", 1 << 20), ("k", 1 << 10)):
        if number + 1 >= size and (number % size in (0, size - 1)):
            return f"{(number + 1) // size}{unit}"
    return str(number)
