"""One picture for each family: by default a strip of bars for each measure, which has its own scale."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS
from tests.benchmarks.rounds import Plan, Samples

OUR_COLOUR, THEIR_COLOUR = "#c2410c", "#94a3b8"
STRIP_INCHES, LINE_INCHES = 0.5, 0.24
DPI = 110


def plot_family(family: Family, samples: Samples, plan: Plan, folder: Path) -> Path | None:
    """Save ``NAME.png``; ``None`` where matplotlib is not installed, or no engine ran."""
    if find_spec("matplotlib") is None or not samples.found:
        return None
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure = family.plot(samples) if family.plot is not None else bars(samples)
    rounds = f"{plan.rounds} round{'s' if plan.rounds > 1 else ''}"
    when = datetime.now(UTC).date().isoformat()
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    figure.suptitle(f"{family.title} ({when}; {machine}; {rounds}, {plan.clock} time)", fontsize=10)
    path = folder / f"{family.name}.png"
    figure.savefig(path, dpi=DPI)
    pyplot.close(figure)
    return path


def bars(samples: Samples) -> Any:
    """For each measure the median of every subject, with the range of the rounds."""
    from matplotlib import pyplot

    lines = [len(found) for found in samples.found.values()]
    heights = [STRIP_INCHES + LINE_INCHES * count for count in lines]
    figure, axes = pyplot.subplots(
        len(lines), 1, figsize=(8, 0.6 + sum(heights)), height_ratios=heights, squeeze=False, layout="constrained"
    )
    for axis, (measure, found) in zip(axes[:, 0], samples.found.items(), strict=True):
        _strip(axis, samples, measure, sorted(found, key=lambda name: (name != OURS, name)))
    return figure


def _strip(axis: Any, samples: Samples, measure: str, subjects: list[str]) -> None:
    medians = [samples.median(measure, name) for name in subjects]
    spread = [
        [middle - min(samples.found[measure][name]) for name, middle in zip(subjects, medians, strict=True)],
        [max(samples.found[measure][name]) - middle for name, middle in zip(subjects, medians, strict=True)],
    ]
    colours = [OUR_COLOUR if name == OURS else THEIR_COLOUR for name in subjects]
    drawn = axis.barh(subjects, medians, xerr=spread, color=colours, ecolor="#475569", capsize=2)
    axis.bar_label(drawn, [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in medians], padding=6)
    axis.set_title(f"{measure} ({samples.units[measure]})", fontsize=9, loc="left")
    axis.invert_yaxis()
    axis.margins(x=0.15)
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
