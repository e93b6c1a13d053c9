"""Sentences of pages: none has more than 25 words, and none holds a word that hides who acts, or when.

Code, links' targets and markup count for nothing. Headings, items of lists and cells of tables are sentences of their
own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.tidy.findings import Finding, Source
from tests.tidy.words import BANNED

LIMIT = 25
"""Words that a sentence may have."""

PAGES = ("docs/", "README.md", "CONTRIBUTING.md")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FENCE = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:    [^\n]*\n)+")
CODE = re.compile(r"(`+)(?!`).+?\1", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
RULE = re.compile(r"^[\s|:-]+$")
END = re.compile(r"(?<=[.?!])[)\"*_]*\s+(?=[\"(*_]*[A-Z0-9§])")
WORD = re.compile(r"\w")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|cf|etc)\.")


class Sentence(NamedTuple):
    """One sentence of a page, and the line on which its paragraph begins."""

    line: int
    text: str

    @property
    def words(self) -> int:
        """How many it has; code is one."""
        return sum(1 for word in self.text.split() if WORD.search(word))


def unclear(source: Source) -> Iterator[Finding]:
    """Sentences of a page that are too long, or hold a banned word."""
    if not source.path.endswith(".md") or not source.path.startswith(PAGES):
        return
    for sentence in sentences(source.text):
        begins = " ".join(sentence.text.split()[:8])
        if sentence.words > LIMIT:
            yield Finding(source.path, sentence.line, f"{sentence.words} words, {LIMIT} are allowed: {begins} …")
        if found := BANNED.search(sentence.text):
            yield Finding(source.path, sentence.line, f"says {found[0]!r}: name the actor or the time: {begins} …")


def sentences(page: str) -> Iterator[Sentence]:
    """All of ``page``, paragraph by paragraph."""
    for line, paragraph in _paragraphs(_without_code(page)):
        for text in END.split(" ".join(paragraph.split())):
            if text:
                yield Sentence(line, text)


def _without_code(page: str) -> str:
    """``page`` with as many lines, where code is one word, which may begin a sentence, and markup none."""
    for pattern in (COMMENT, FENCE, INDENTED):
        page = pattern.sub(lambda found: "\n" * found[0].count("\n"), page)
    page = CODE.sub(lambda found: "Code" + "\n" * found[0].count("\n"), page)
    page = LINK.sub(lambda found: found[1] + "\n" * (found[0].count("\n") - found[1].count("\n")), page)
    return ABBREVIATION.sub(r"\1", page)


def _paragraphs(page: str) -> Iterator[tuple[int, str]]:
    begun, held = 1, ""
    for number, line in enumerate([*page.splitlines(), ""], start=1):
        heading, row = line.startswith("#"), line.lstrip().startswith("|")
        if held and (heading or row or not line.strip() or ITEM.match(line)):
            yield begun, held
            held = ""
        if row:
            yield from ((number, cell) for cell in line.strip().strip("|").split("|") if not RULE.match(cell))
        elif heading:
            yield number, line.lstrip("# ")
        elif line.strip():
            begun = begun if held else number
            held += ITEM.sub("", line) + "\n"
