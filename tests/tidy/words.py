"""Words that hide who acts, or when, have better ones: no module and no script holds any.

Pages have none of them either: see `tests.tidy.prose`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tidy.findings import Finding, Source

BANNED = re.compile(r"\b(?:who(?:m)?(?:so)?ever|told|at\s+hand|gone|moment|made\s+again)\b", re.IGNORECASE)
PLACES = ("slate_async/", "metastores/", "scripts/")


def banned(source: Source) -> Iterator[Finding]:
    """Each such word in a module that ships, or in a script."""
    if not source.path.startswith(PLACES):
        return
    for found in BANNED.finditer(source.text):
        line = source.text.count("\n", 0, found.start()) + 1
        word = " ".join(found[0].split())
        yield Finding(source.path, line, f"says {word!r}: name the actor or the time")
