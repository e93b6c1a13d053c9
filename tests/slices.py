"""Which part of a long test runs: all of it with ``--full``, else a slice that moves with every commit.

Each commit of the project draws other seeds, so CI walks through them over time, and yet a given commit
always runs the same ones. ``SLATE_SLICE_SEED`` overrides the commit, to repeat a failure.
"""

from __future__ import annotations

import functools
import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def slice_seed() -> int:
    """A number below 2**32 that depends on the commit alone; 0 outside a git checkout."""
    override = os.environ.get("SLATE_SLICE_SEED")
    if override is not None:
        return int(override)
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(done.stdout.strip()[:8], 16)


def seeds(count: int) -> range:
    """``count`` seeds in a row, those of this commit."""
    start = slice_seed() % 1_000_000 * 1_000
    return range(start, start + count)


def sample(items: Sequence[T], count: int, of: str = "") -> list[T]:
    """``count`` of ``items`` (or all, if fewer), in their order, those of this commit. ``of``: what they are: without
    it two lists as long as each other are drawn alike, and a pair of others never meets."""
    chosen = random.Random(f"{slice_seed()} {of}" if of else slice_seed()).sample(
        range(len(items)), min(count, len(items))
    )
    return [items[index] for index in sorted(chosen)]
