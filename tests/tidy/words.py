"""Words that hide who acts, or when, have better ones; their count in a file may only fall.

``python -m tests.tidy.words`` writes the counts down, in ``tests/tidy/words.txt``: it moves entries of files that moved
and lowers others, but never lets the sum rise.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.tidy.findings import Finding, Source, project_sources

ROOT = Path(__file__).resolve().parents[2]
TABLE = "tests/tidy/words.txt"
BANNED = re.compile(r"\b(?:whoever|told|at\s+hand|gone|moment|made\s+again)\b", re.IGNORECASE)
PLACES = ("slate_async/", "metastores/", "scripts/")
"""Pages have none of them: see `tests.tidy.prose`."""


def counts(sources: Sequence[Source]) -> dict[str, int]:
    """How many of the words each file holds that holds any."""
    looked_at = (source for source in sources if source.path.startswith(PLACES))
    found = {source.path: len(BANNED.findall(source.text)) for source in looked_at}
    return {path: count for path, count in found.items() if count}


def banned(sources: Sequence[Source], root: Path) -> Iterator[Finding]:
    """No file holds more of them than the table allows."""
    allowed = table(root)
    for path, count in counts(sources).items():
        most = allowed.get(path, 0)
        if count > most:
            message = f"holds {count} of the words whoever, told, at hand, gone, moment, made again; {most} are allowed"
            yield Finding(path, 0, f"{message}: name the actor or the time (moved? python -m tests.tidy.words)")


def table(root: Path) -> dict[str, int]:
    """What is allowed: counts by path."""
    lines = (root / TABLE).read_text().splitlines()
    return {path: int(count) for count, path in (line.split() for line in lines)}


def written(found: dict[str, int]) -> str:
    """``found`` as the table."""
    return "".join(f"{count:>3} {path}\n" for path, count in sorted(found.items()))


def main() -> None:
    """Write the table of the project this file is part of, unless the sum would rise."""
    found, allowed = counts(project_sources(ROOT)[0]), table(ROOT)
    if sum(found.values()) > sum(allowed.values()):
        sys.exit(f"{sum(found.values())} of the words, {sum(allowed.values())} are allowed: say it otherwise")
    (ROOT / TABLE).write_text(written(found))


if __name__ == "__main__":
    main()
