"""The sentences of a page, as its readers meet them: without code, links' targets and markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LIMIT = 25
"""Words that a sentence may have."""

GENERATED = re.compile(r"<!-- begin generated.*?<!-- end generated[^>]*-->", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FENCE = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$", re.MULTILINE | re.DOTALL)
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
        return sum(1 for word in self.text.split() if WORD.search(word))


def sentences(page: str) -> Iterator[Sentence]:
    """All of ``page``, paragraph by paragraph; headings, items and cells of tables are paragraphs of their own."""
    for line, paragraph in _paragraphs(_without(page)):
        for text in END.split(" ".join(paragraph.split())):
            if text:
                yield Sentence(line, text)


def _without(page: str) -> str:
    """``page`` with as many lines, where code is one word, which may begin a sentence, and markup none."""
    for pattern in (GENERATED, COMMENT, FENCE):
        page = pattern.sub(lambda found: "\n" * found[0].count("\n"), page)
    page = CODE.sub(lambda found: "Code" + "\n" * found[0].count("\n"), page)
    page = LINK.sub(r"\1", page)
    return ABBREVIATION.sub(r"\1", page)


def _paragraphs(page: str) -> Iterator[tuple[int, str]]:
    begun, held = 1, ""
    for number, line in enumerate([*page.splitlines(), ""], start=1):
        cells = [] if RULE.match(line) else line.strip().strip("|").split("|") if line.lstrip().startswith("|") else None
        begins = ITEM.match(line) or line.startswith("#") or not line.strip() or cells is not None
        if begins and held:
            yield begun, held
            held = ""
        if cells is not None:
            yield from ((number, cell) for cell in cells)
        elif line.strip():
            begun, held = (number, "") if not held else (begun, held)
            held += ITEM.sub("", line).lstrip("# ") + "\n"
            if line.startswith("#"):
                yield begun, held
                held = ""
