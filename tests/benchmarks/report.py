"""What a family's rounds come to: tables on the screen, ``bench-results/NAME.json`` with every figure, and a plot."""

from __future__ import annotations

import importlib.metadata
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, verdicts
from tests.benchmarks.machine import RESULTS, about, write_results
from tests.benchmarks.plots import plot_family
from tests.benchmarks.rounds import Plan, Samples

MOST_COLUMNS = 6
PACKAGES = ("slatedb", "rocksdict", "lmdb", "numpy", "pyarrow")


def figure(value: float) -> str:
    """Three or more digits, whatever the size."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def subjects(samples: Samples) -> list[str]:
    """Ours first, then in order of appearance in any measure of the first round, sorted."""
    named = {subject for found in samples.found.values() for subject in found}
    return sorted(named, key=lambda name: (name != OURS, name))


def show_figures(console: Console, family: Family, samples: Samples, plan: Plan) -> None:
    machine = about()
    took = f"medians of {plan.rounds} paired rounds, {plan.clock} time"
    where = f"Python {machine['python']}, {machine['cores']} cores, load {machine['load']:.1f}"
    names = subjects(samples)
    fill = _columns if len(names) <= MOST_COLUMNS else _lines
    table = Table(title=f"{family.title}: {took}; {where}", caption="in brackets: ours / theirs, the median ratio")
    table.add_column("measure")
    table.add_column("unit")
    fill(table, samples, names)
    console.print(table)
    for note in family.notes:
        console.print(f"  {note}", style="dim", highlight=False)


def _columns(table: Table, samples: Samples, names: list[str]) -> None:
    """A column for each subject."""
    for name in names:
        table.add_column(name, justify="right")
    for measure, found in samples.found.items():
        cells = [_cell(samples, measure, name) if name in found else "" for name in names]
        table.add_row(measure, samples.units[measure], *cells)


def _lines(table: Table, samples: Samples, names: list[str]) -> None:
    """A line for each peer, of which every measure has few."""
    for heading in (OURS, "beside it", ""):
        table.add_column(heading, justify="left" if heading == "beside it" else "right")
    for measure, found in samples.found.items():
        ours = [_cell(samples, measure, OURS)] if OURS in found else [""]
        peers = [[name, _cell(samples, measure, name)] for name in names if name in found and name != OURS]
        table.add_row(measure, samples.units[measure], *ours, *(peers[0] if peers else ("", "")))
        for peer in peers[1:]:
            table.add_row("", "", "", *peer)


def _cell(samples: Samples, measure: str, subject: str) -> str:
    text = figure(samples.median(measure, subject))
    if subject == OURS or not samples.has(measure, OURS):
        return text
    return f"{text} ({samples.ratio(measure, OURS, measure, subject):.3g})"


def show_goals(console: Console, family: Family, samples: Samples) -> None:
    table = Table(title=f"{family.title}: goals")
    for heading in ("goal", "", "measured", ""):
        table.add_column(heading, justify="right" if heading == "measured" else "left")
    for verdict in verdicts(family.goals, samples):
        measured = "" if verdict.measured is None else figure(verdict.measured)
        style = {"met": "green", "not met": "red"}.get(verdict.word, "dim")
        table.add_row(str(verdict.goal.number), verdict.goal.text, measured, f"[{style}]{verdict.word}[/]")
    console.print(table)


def versions() -> dict[str, str]:
    """Of the packages that decide the figures."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def results_of(family: Family, samples: Samples, plan: Plan) -> dict[str, Any]:
    """Everything a later reader needs."""
    return {
        "family": family.name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "plan": asdict(plan),
        "packages": versions(),
        "units": samples.units,
        "samples": samples.found,
        "goals": [
            {
                "goal": verdict.goal.number,
                "text": verdict.goal.text,
                "measured": verdict.measured,
                "result": verdict.word,
            }
            for verdict in verdicts(family.goals, samples)
        ],
        "notes": family.notes,
    }


def report(family: Family, samples: Samples, plan: Plan, console: Console) -> None:
    """Print, write and draw."""
    show_figures(console, family, samples, plan)
    if family.goals:
        show_goals(console, family, samples)
    path = write_results(family.name, results_of(family, samples, plan))
    drawn = plot_family(family, samples, plan, RESULTS)
    missing = "matplotlib is not installed" if samples.found else "no engine ran"
    console.print(f"  {path}" + (f", {drawn}" if drawn else f" (no plot: {missing})"), style="dim")
