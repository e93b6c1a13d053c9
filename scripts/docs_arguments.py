"""What mkdocstrings asks while it builds the site: arguments and fields that a docstring describes are shown as a list.

A paragraph that begins with ``name:`` or ``name, other:`` has such a line for each of them. In Markdown its lines would
run together.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

DESCRIBED = re.compile(r"(?P<names>[a-z_]\w*(?:, [a-z_]\w*)*): ")


class Arguments(griffe.Extension):
    """Makes lists of them in all docstrings."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called when all of the package is read."""
        _describe(pkg)


def _describe(thing: Any) -> None:
    if thing.docstring is not None:
        thing.docstring.value = with_lists(thing.docstring.value)
    for member in thing.members.values():
        if not member.is_alias:
            _describe(member)


def with_lists(docstring: str) -> str:
    """``docstring`` with an item for each line that describes names, in paragraphs that begin with one."""
    return "\n\n".join(_item_for_item(paragraph) for paragraph in docstring.split("\n\n"))


def _item_for_item(paragraph: str) -> str:
    if not DESCRIBED.match(paragraph):
        return paragraph
    lines: list[str] = []
    for line in paragraph.split("\n"):
        if found := DESCRIBED.match(line):
            names = ", ".join(f"`{name}`" for name in found["names"].split(", "))
            lines.append(f"- {names}: {line[found.end() :]}")
        else:
            lines.append(f"  {line}")
    return "\n".join(lines)
