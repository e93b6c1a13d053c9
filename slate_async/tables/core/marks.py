"""How the repetition of a commit is recognised: every version carries the number of the commit that made it.

A writer numbers its commits from 1 on, one after another. The head keeps the last number of each writer, so a commit
that is in changes nothing when it is sent again. When there are too many writers, marks of those that have committed
nothing for longest are forgotten, and ``marks_floor`` says up to which version that was: of an older attempt that had
no answer nobody can tell any more, so it ends unknown.

Rules T1 and T2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from slate_async.errors import ConflictError, InvalidError, NotFoundError
from slate_async.tables.core.head import Head, Mark

MAX_MARKS: Final = 2048
MAX_KEPT_MARKS: Final = 1024
"""Of writers whose marks are kept until they are forgotten by name."""
FORGOTTEN: Final = "forgotten"
"""`ConflictError.reason` of an attempt whose mark may have been forgotten."""


class TableEdit(Protocol):
    """What a commit changes: a pure function, safe to apply again after any conflict."""

    def apply(self, head: Head) -> Head:
        """``head`` after it, but for version, time and marks. Raises `ConflictError` or `InvalidError` when it can
        never apply again."""


@dataclass(frozen=True, slots=True)
class MarkedEdit:
    """``edit`` as commit ``n`` of ``writer``. An edit of `slate_async.commits`.

    began: the head's version when it was first asked to commit
    kept: whether its mark is, so that it is never forgotten
    """

    edit: TableEdit
    writer: str
    n: int
    began: int
    now_ms: int
    kept: bool = False

    def apply(self, head: Head) -> Head | None:
        """The successor of ``head``, or ``None`` when this commit is in (rule T1)."""
        mark = head.marks.get(self.writer)
        if mark is not None and mark.n >= self.n:
            return None
        if head.dropped:
            raise NotFoundError("the table was dropped", outcome="not_applied")
        if not self.kept and head.marks_floor > self.began:
            raise ConflictError(
                f"commits up to version {head.marks_floor} cannot be recognised any more, and this one began at"
                f" {self.began}; see whether it is in",
                outcome="unknown",
                reason=FORGOTTEN,
            )
        after, version = self.edit.apply(head), head.version + 1
        marks = {**head.marks, self.writer: Mark(self.n, version, self.kept)}
        kept, floor = _few(marks, after.marks_floor, self.writer)
        return replace(
            after, version=version, time_ms=max(head.time_ms, self.now_ms), marks=kept, marks_floor=floor, token=""
        )


def _few(marks: Mapping[str, Mark], floor: int, writer: str) -> tuple[Mapping[str, Mark], int]:
    """At most `MAX_MARKS`, and the floor then. Raises `InvalidError` when too many are to be kept."""
    if len(marks) <= MAX_MARKS and not marks[writer].kept:
        return marks, floor
    passing = sorted((mark.version, name) for name, mark in marks.items() if not mark.kept)
    if len(marks) - len(passing) > MAX_KEPT_MARKS:
        raise InvalidError(
            f"a table remembers the commits of at most {MAX_KEPT_MARKS} applications; forget one", outcome="not_applied"
        )
    forgotten = passing[: max(0, len(marks) - MAX_MARKS)]
    names = {name for _, name in forgotten}
    return {name: mark for name, mark in marks.items() if name not in names}, max([floor, *(at for at, _ in forgotten)])
