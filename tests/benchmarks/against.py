"""``scripts/bench --against COMMIT``: what single calls cost here, beside what they cost at an earlier commit.

Each round starts a process for either side, in changing order, and both run the same `tests.benchmarks.calls`. The
figures are processor time, at real-time priority where that is allowed, so other work disturbs them little.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.benchmarks import calls
from tests.benchmarks.machine import write_results

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 100
BOUND = 0.98
Costs = dict[str, list[float]]


def check_out(commit: str, folder: Path) -> None:
    """The packages of ``commit``, in ``folder``."""
    packed = subprocess.run(
        ["git", "archive", commit, "slate_async", "metastores"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def one_side(packages: Path, rows: int) -> dict[str, float]:
    """What a process of its own measures with the packages in ``packages``."""
    done = subprocess.run(
        [sys.executable, "-P", calls.__file__, str(packages.resolve()), str(rows)],
        env={**os.environ, "PYTHONPATH": str(packages)},
        check=True,
        stdout=subprocess.PIPE,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def ratios(old: Costs, new: Costs) -> dict[str, list[float]]:
    """For each measure and round how many times as fast this tree is."""
    return {name: [one / other for one, other in zip(old[name], new[name], strict=True)] for name in old}


def table(commit: str, old: Costs, new: Costs) -> Table:
    shown = Table(title=f"processor time a row: medians of {len(next(iter(old.values())))} rounds")
    for heading in ("measure", f"{commit} (µs)", "here (µs)", "times as fast", "middle half"):
        shown.add_column(heading, justify="left" if heading == "measure" else "right")
    for name, found in ratios(old, new).items():
        low, middle, high = statistics.quantiles(found, method="inclusive") if len(found) > 1 else found * 3
        style = "red" if middle < BOUND else "green"
        shown.add_row(
            name,
            f"{statistics.median(old[name]):.3f}",
            f"{statistics.median(new[name]):.3f}",
            f"[{style}]{middle:.3f}[/]",
            f"{low:.3f} … {high:.3f}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--against", required=True, metavar="COMMIT", dest="commit", help="the earlier one")
    parser.add_argument("--rounds", type=int, default=11, help="pairs of processes (default 11)")
    parser.add_argument("--rows", type=int, default=40_000, help="rows that each writes (default 40,000)")
    chosen = parser.parse_args()
    old: Costs = {}
    new: Costs = {}
    with tempfile.TemporaryDirectory(prefix="slate-bench-") as folder:
        check_out(chosen.commit, Path(folder))
        for number in track(range(chosen.rounds), description="rounds", transient=True):
            sides = [(Path(folder), old), (ROOT, new)]
            for packages, costs in reversed(sides) if number % 2 else sides:
                for name, value in one_side(packages, chosen.rows).items():
                    costs.setdefault(name, []).append(value)
    console = Console(width=WIDTH)
    console.print(table(chosen.commit, old, new))
    console.print(f"  {write_results('against', {'commit': chosen.commit, 'old': old, 'new': new})}", style="dim")


if __name__ == "__main__":
    main()
