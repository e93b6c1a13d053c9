"""The figures of the README and docs/operations/benchmarks.md, from what the families last wrote to ``bench-results/``.

``python -m tests.benchmarks.summary`` prints Markdown, a table beside peers and one of all goals, and writes
``bench-results/summary.png``.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

from tests.benchmarks.families.registry import FAMILIES
from tests.benchmarks.goals import OURS
from tests.benchmarks.machine import RESULTS
from tests.benchmarks.plots import DPI, OUR_COLOUR, THEIR_COLOUR
from tests.benchmarks.report import figure

PEERS = ("slatedb", "rocksdict")
SHOWN = (
    ("put", "put"),
    ("put", "write of 1,000 rows"),
    ("durable", "256 tasks"),
    ("durable", "4096 tasks"),
    ("get", "memtable"),
    ("get", "one run"),
    ("get", "one run, missing key"),
    ("get", "8 L0 and 4 runs"),
    ("scan", "rows"),
    ("scan", "batches"),
    ("scan", "20 rows from a random key"),
    ("flush", "flush, a core"),
    ("flush", "compaction, a core"),
)
"""Family and measure; higher is better in all of them."""


def load() -> dict[str, Any]:
    """What each family wrote last, by name; those that never ran are left out."""
    paths = {family: RESULTS / f"{family}.json" for family, _ in SHOWN}
    return {family: json.loads(path.read_text()) for family, path in paths.items() if path.exists()}


def shown(written: dict[str, Any]) -> list[tuple[str, str]]:
    """Of `SHOWN`, what is there."""
    return [(family, measure) for family, measure in SHOWN if family in written]


def ratio(samples: dict[str, list[float]], peer: str) -> float | None:
    """The median of the rounds' ratios of ours to ``peer``'s."""
    if peer not in samples:
        return None
    return statistics.median(one / other for one, other in zip(samples[OURS], samples[peer], strict=True))


def table(written: dict[str, Any]) -> list[str]:
    """Lines of Markdown."""
    lines = [f"| | {OURS} | {' | '.join(f'{peer} | times' for peer in PEERS)} |", "|---|---|" + "---|---|" * len(PEERS)]
    for family, measure in shown(written):
        results = written[family]["results"]
        samples, unit = results["samples"][measure], results["units"][measure]
        cells = [f"{family}: {measure}, {unit}", figure(statistics.median(samples[OURS]))]
        for peer in PEERS:
            times = ratio(samples, peer)
            cells += ["", ""] if times is None else [figure(statistics.median(samples[peer])), f"{times:.2g}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def goals() -> list[str]:
    """Lines of Markdown: every goal of every family that was run."""
    lines = ["| goal | | measured | |", "|---|---|---|---|"]
    for family in FAMILIES:
        path = RESULTS / f"{family}.json"
        for goal in json.loads(path.read_text())["results"]["goals"] if path.exists() else ():
            measured = "" if goal["measured"] is None else figure(goal["measured"])
            lines.append(f"| {goal['goal']} | {family}: {goal['text']} | {measured} | {goal['result']} |")
    return lines


def plot(written: dict[str, Any]) -> None:
    """How many times as fast as each peer, on a logarithmic scale."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullFormatter

    drawn, axes = pyplot.subplots(1, len(PEERS), figsize=(11, 4.5), sharey=True, layout="constrained")
    labels = [f"{family}: {measure}" for family, measure in shown(written)]
    for axis, peer in zip(axes, PEERS, strict=True):
        times = [ratio(written[family]["results"]["samples"][measure], peer) for family, measure in shown(written)]
        known = [(label, value) for label, value in zip(labels, times, strict=True) if value is not None]
        axis.barh(labels, [1] * len(labels), alpha=0)
        axis.barh(
            [label for label, _ in known],
            [value - 1 for _, value in known],
            left=1,
            color=[OUR_COLOUR if value >= 1 else THEIR_COLOUR for _, value in known],
        )
        for label, value in known:
            axis.text(value, label, f" {value:.2g}", va="center", ha="left" if value >= 1 else "right", fontsize=8)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.axvline(1, color="#475569", linewidth=1)
        axis.set_title(f"times as fast as {peer}", fontsize=10)
        axis.margins(x=0.2)
        axis.tick_params(labelsize=8)
    axes[0].invert_yaxis()
    first = next(iter(written.values()))
    when, machine, clock = first["results"]["date"][:10], first["machine"], first["results"]["plan"]["clock"]
    drawn.suptitle(f"{when}; Python {machine['python']}, {machine['cores']} cores, {clock} time", fontsize=10)
    drawn.savefig(RESULTS / "summary.png", dpi=DPI)


def main() -> None:
    written = load()
    if not written:
        sys.exit(f"{RESULTS} is empty; run scripts/bench --all")
    print("\n".join([*table(written), "", *goals()]))
    plot(written)


if __name__ == "__main__":
    main()
