"""Where results go: tables for people, JSON for programs (``--json``), bytes as stored (``--raw``).

Results go to standard output, everything else (progress, counts, errors) to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


@contextmanager
def naming_standard_output() -> Iterator[None]:
    """Errors of writing in the body say that it was standard output that could not be written, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = "standard output"
        raise


@dataclass(frozen=True, slots=True)
class Output:
    """The two streams of a command, and the form of results."""

    as_json: bool = False
    out: Console = field(default_factory=lambda: Console(highlight=False, markup=False, emoji=False))
    err: Console = field(default_factory=lambda: Console(stderr=True, highlight=False, markup=False, emoji=False))

    def line(self, text: str) -> None:
        """One line of result, as it is: never wrapped, tabs kept."""
        with naming_standard_output():
            self.out.file.write(text + "\n")

    def flush(self) -> None:
        """Let nothing wait in a buffer."""
        with naming_standard_output():
            self.out.file.flush()

    def note(self, text: str) -> None:
        """One line to standard error; silent with ``--json``."""
        if not self.as_json:
            self.problem(text)

    def problem(self, text: str) -> None:
        """One line, or a traceback, to standard error, whatever the form."""
        self.err.print(Text(harmless(text, keep="\n")), soft_wrap=True)

    def problem_json(self, value: Mapping[str, Any]) -> None:
        """One JSON object on one line of standard error."""
        self.problem(to_json(value, ascii_only=not _is_unicode(self.err.encoding)))

    def error(self, name: str, message: str, outcome: str | None, code: int) -> None:
        """An error as a JSON object."""
        self.problem_json({"error": name, "message": message, "outcome": outcome, "exit_code": code})

    @property
    def charset(self) -> str:
        """The encoding of standard output."""
        return self.out.encoding

    def json(self, value: Mapping[str, Any]) -> None:
        """One JSON object on one line."""
        self.line(to_json(value, ascii_only=not _is_unicode(self.charset)))

    def raw(self, *parts: bytes) -> None:
        """Bytes as they are."""
        with naming_standard_output():
            self.out.file.flush()
            stream = sys.stdout.buffer
            for part in parts:
                stream.write(part)
            stream.flush()

    def fields(self, title: str, values: Mapping[str, Any]) -> None:
        """Names and values, nested ones as ``outer.inner``: a table of two columns, or one JSON object."""
        if self.as_json:
            self.json(values)
            return
        self.table(title, ("", ""), flatten(values))

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, headed: bool = False) -> None:
        """A table; tab-separated lines where standard output is not a terminal. Cells are made `harmless`.

        headed: the lines begin with the title and the names of columns, for people who read several tables"""
        if not self.out.is_terminal:
            if headed:
                self.line("")
                self.line(f"{title}:")
                self.line("\t".join(columns))
            for row in rows:
                self.line("\t".join(map(harmless, row)))
            return
        table = Table(title=title or None, title_justify="left", show_header=any(columns))
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(harmless(cell)) for cell in row))
        self.out.print(table)


def _is_unicode(charset: str) -> bool:
    return charset.lower().replace("-", "").startswith("utf")


def to_json(value: object, *, ascii_only: bool = False) -> str:
    """Compact JSON; bytes in hex, anything else unknown as its text."""
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"), default=_plain)


def harmless(text: str, keep: str = "") -> str:
    """``text`` with what is not printable, but for the characters of ``keep``, as escapes: it steers no terminal, and
    a cell stays one cell."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode("ascii") for char in text
    )


def utc(milliseconds: int) -> str:
    """A time in ms since the epoch, as people write it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def counted(count: int, noun: str) -> str:
    """Like "1 row", "2 rows"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Rows ``(name, text)`` of a nested mapping."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows.extend(flatten(value, f"{prefix}{name}."))
        else:
            rows.append((f"{prefix}{name}", _cell(value)))
    return rows


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(_cell(item) for item in value) if isinstance(value, list | tuple) else str(value)


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
