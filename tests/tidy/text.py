"""Rules over the text of any file: characters, hosts, paths of one machine, links that lead nowhere."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.tidy.findings import Finding, Source

# Patterns are split so that this file does not match itself.
REGISTRY = re.compile(
    r"https?://[^\s/\"']*(?:py" r"pi|np" r"mjs|python" r"hosted|crates|debian)"
    r"|--(?:extra-)?index" r"-url|--reg" r"istry\b"
)  # fmt: skip
MACHINE_PATH = re.compile(r"(?<![\w./-])/(?:wo" r"rk|ro" r"ot|ho" r"me/\w+)/")
LEFTOVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b|^(?:<{7}|>{7}) ")
SCRIPT = re.compile(r"(?<![\w/.-])(?:\.ci|scripts)/[\w-]+(?:\.\w+)?")
DECISION = re.compile(r"docs/decisions/(\d{4})-[^/]*\.md")
LINK = re.compile(r"\]\(([^)\s]+)\)")
README_LINES = 150
UNWANTED_CATEGORIES = {"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"}
UNWANTED_CHARACTERS = {"\N{NO-BREAK SPACE}", "\N{REPLACEMENT CHARACTER}"}


def short_readme(source: Source) -> Iterator[Finding]:
    """The README is read in one go; what needs more room is a page."""
    if source.path == "README.md" and len(source.lines) - 1 > README_LINES:
        yield Finding(source.path, 0, f"has more than {README_LINES} lines")


def characters(source: Source) -> Iterator[Finding]:
    """No control characters, invisible ones, carriage returns or blanks at line ends; one newline at the end."""
    for number, line in enumerate(source.lines, 1):
        for character in line:
            if character in UNWANTED_CHARACTERS or (
                unicodedata.category(character) in UNWANTED_CATEGORIES and character != "\t"
            ):
                yield Finding(source.path, number, f"holds the character U+{ord(character):04X}")
                break
        if line != line.rstrip(" \t"):
            yield Finding(source.path, number, "ends in blanks")
    if source.text and (not source.text.endswith("\n") or source.text.endswith("\n\n")):
        yield Finding(source.path, len(source.lines), "must end in exactly one newline")


def leftovers(source: Source) -> Iterator[Finding]:
    """No package registry's host, no path of one machine, no note to self."""
    rules = [
        (REGISTRY, "names a package registry; the environment says which is used"),
        (MACHINE_PATH, "names a path of one machine"),
        (LEFTOVER, "is a note to self or a merge leftover"),
    ]
    for number, line in enumerate(source.lines, 1):
        for pattern, message in rules:
            if match := pattern.search(line):
                yield Finding(source.path, number, f"{match.group().strip()!r} {message}")


def commands(source: Source, root: Path) -> Iterator[Finding]:
    """Every script a document names exists and, unless its suffix says how it is run, can be run."""
    if not source.path.endswith(".md"):
        return
    for number, line in enumerate(source.lines, 1):
        for name in SCRIPT.findall(line):
            file = root / name
            if not file.is_file():
                yield Finding(source.path, number, f"names {name}, which does not exist")
            elif not file.suffix and not name.endswith("/_env") and not file.stat().st_mode & 0o100:
                yield Finding(source.path, number, f"names {name}, which is not executable")


def links(source: Source, root: Path) -> Iterator[Finding]:
    """Every relative link of a document leads to a file."""
    if not source.path.endswith(".md"):
        return
    for number, line in enumerate(source.lines, 1):
        for target in LINK.findall(line):
            path = target.partition("#")[0]
            if path and "://" not in target and not (root / source.path).parent.joinpath(path).exists():
                yield Finding(source.path, number, f"links to {target}, which does not exist")


def license_text(source: Source) -> Iterator[Finding]:
    """The license is Apache 2.0, whole."""
    if source.path == "LICENSE":
        for phrase in ("Apache License", "Version 2.0, January 2004", "END OF TERMS AND CONDITIONS"):
            if phrase not in source.text:
                yield Finding(source.path, 0, f"lacks {phrase!r}")


def decisions(sources: Sequence[Source]) -> Iterator[Finding]:
    """Each decision has a number of its own, which its title says."""
    taken: dict[str, str] = {}
    for source in sources:
        if (named := DECISION.fullmatch(source.path)) is None:
            continue
        number = named[1]
        if (other := taken.setdefault(number, source.path)) != source.path:
            yield Finding(source.path, 1, f"has the number of {other}; take the next free one")
        if not source.text.startswith(f"# {int(number)}. "):
            yield Finding(source.path, 1, f"must begin with '# {int(number)}. '")
