"""Words that hide who acts, or when, have better ones: no module and no script holds any.

Pages have none of them either: see `tests.tidy.prose`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

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


PARTS = frozenset({"whoever", "whomever", "whosoever", "told", "gone", "moment"})
"""The banned words that may be a part of an identifier."""

RETIRED = re.compile(
    r"""
    withdraw | NotAdmitted | IngestAdmission | AdmitIngests | (?<=['"`])admitted(?=['"`])    # abort, apply
    | \b(?:OpenHold|TakeHold|MoveHold|BorrowedHold) | hold_?[lL]ifetime | --hold\b | \bchanges\([^)\n]*\bhold=
    | \bbehind_ms\b | \bLateness\b | \bloop\.(?:wakes|late_|most_late)                       # lag
    | \bOpeningDb\b | \bstored_snapshot\b | \bCollection(?:Report|Progress)\b | \bHoldingCompaction\b
    | \b(?:compaction_width|level_ratio|room_bytes)\b | \bforget_ingest | \blist_ingest_objects\b
    | \b(?:db|admin)\.(?:create_checkpoint|list_checkpoints|list_ingests|inspect_)
    | \bFeedPlace\b | \bfeed\.(?:place|keep)\b
    | \b(?:FairTurns|RenewedRows|TableSet|MakeAgain|OpenSite|check_belonging)\b
    | let_go | (?:\b|_)untold | (?:\b|_)at_hand | \btake-over
    """,
    re.VERBOSE,
)
"""Words of before the glossary that have no other meaning; `docs/reference/glossary.md` has today's."""

STORED_WORDS = "stores the outcome of an ingest under its first name"
MAY_SAY_RETIRED = {
    "CHANGELOG.md": "says what names were before",
    "docs/decisions/0025-floors-are-folders-and-words-are-the-fields.md": "says which stored words stayed",
    "docs/format/manifest.md": STORED_WORDS,
    "slate_async/storage/manifest/state.py": STORED_WORDS,
    "tests/unit/storage/manifest/edits/test_ingests.py": STORED_WORDS,
    "tests/unit/storage/manifest/edits/test_leases.py": STORED_WORDS,
    "tests/unit/storage/manifest/test_every_field.py": STORED_WORDS,
    "tests/unit/storage/manifest/test_golden_metadata.py": STORED_WORDS,
    "tests/tidy/words.py": "lists them",
    "tests/unit/test_tidy.py": "shows that they are found",
}
"""Files that hold retired words, and why."""

IDENTIFIER_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def retired(source: Source) -> Iterator[Finding]:
    """Each word that the glossary replaced, anywhere but in `MAY_SAY_RETIRED`."""
    if source.path in MAY_SAY_RETIRED:
        return
    for found in RETIRED.finditer(source.text):
        line = source.text.count("\n", 0, found.start()) + 1
        yield Finding(source.path, line, f"says {found[0]!r}, a retired word: docs/reference/glossary.md has today's")


def identifiers(source: Source, tree: ast.Module) -> Iterator[Finding]:
    """Names of which a part is a banned word, in modules that ship and scripts; and, anywhere, modules, classes and
    tests that use "collector" for what collects garbage without saying so: collections are a product's."""
    if source.path.startswith(PLACES):
        for name, line in sorted(_names(tree)):
            for word in PARTS.intersection(_parts(name)):
                yield Finding(source.path, line, f"{name} says {word!r}: name the actor or the time")
    named = [(PurePosixPath(source.path).stem, 0)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            isinstance(node, ast.ClassDef) or node.name.startswith("test_")
        ):
            named.append((node.name, node.lineno))
    for name, line in named:
        before = ""
        for part in _parts(name):
            if part in ("collector", "collectors") and before not in ("garbage", "stats"):
                yield Finding(source.path, line, f"{name} does not say what is collected: GC, garbage or statistics")
            before = part


def _names(tree: ast.Module) -> set[tuple[str, int]]:
    """Every identifier, with its first line."""
    first: dict[str, int] = {}
    for node in ast.walk(tree):
        for field in ("id", "name", "attr", "arg", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                line: int = getattr(node, "lineno", 0)
                first[name] = min(line, first.get(name, line))
    return set(first.items())


def _parts(name: str) -> list[str]:
    """The words of an identifier, in lower case."""
    return [part.lower() for part in IDENTIFIER_PARTS.findall(name)]
