"""``python -m tests.benchmarks``: families in paired rounds, their goals and plots. See ``scripts/bench``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable
from dataclasses import replace

from rich.console import Console
from rich.progress import track

from tests.benchmarks.engines import missing_peers
from tests.benchmarks.families.registry import FAMILIES
from tests.benchmarks.family import Family
from tests.benchmarks.report import report
from tests.benchmarks.rounds import CLOCKS, Plan, Samples, Size, Turn

WIDTH = 150
FIRST = ("put", "durable", "get", "scan")
"""What is run if no family is named."""


def run(family: Family, plan: Plan) -> Samples:
    """All rounds of ``family``, each in an event loop of its own."""
    samples = Samples()
    for number in track(range(plan.rounds), description=family.name, transient=True):
        asyncio.run(family.one_round(Turn(number, plan, samples)))
    return samples


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--family", choices=FAMILIES, help=f"default: {', '.join(FIRST)}")
    which.add_argument("--all", action="store_true", help="every family, one after the other")
    parser.add_argument("--rounds", type=int, default=5, help="paired rounds (default 5)")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a look")
    parser.add_argument("--tiny", action="store_true", help="only to see that it works")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: of the process, where others are busy")
    parser.add_argument("--only", nargs="+", default=[], metavar="ENGINE", help="run only these engines")
    return parser.parse_args()


def _names(chosen: argparse.Namespace) -> Iterable[str]:
    if chosen.all:
        return FAMILIES
    return FIRST if chosen.family is None else [chosen.family]


def main() -> None:
    chosen = arguments()
    size: Size = "tiny" if chosen.tiny else "quick" if chosen.quick else "full"
    plan = Plan(chosen.rounds, size, chosen.clock, tuple(chosen.only))
    console = Console(width=WIDTH)
    if absent := missing_peers():
        console.print(f"not installed, left out: {', '.join(absent)}", style="yellow")
    for name in _names(chosen):
        family = FAMILIES[name]
        rounds = replace(plan, rounds=min(plan.rounds, family.most_rounds or plan.rounds))
        report(family, run(family, rounds), rounds, console)


if __name__ == "__main__":
    main()
