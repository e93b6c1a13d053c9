"""How the repetition of a commit is recognised: every version carries the number of the commit that made it.

A writer numbers its commits from 1 on, one after another. The head keeps the last number of each writer, so a commit
that is in changes nothing when it is sent again. When there are too many writers, marks of those that have committed
nothing for longest are forgotten, and ``marks_floor`` says up to which version that was: of an older attempt that had
no answer nobody can tell any more, so it ends unknown.

Rules T1 and T2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from slate_async.errors import InvalidError
from slate_async.tables.core.head import Mark

MAX_MARKS: Final = 2048
MAX_KEPT_MARKS: Final = 1024
"""Of writers whose marks are kept until they are forgotten by name."""
FORGOTTEN: Final = "forgotten"
"""`ConflictError.reason` of an attempt whose mark may have been forgotten."""


def check_room(marks: Mapping[str, Mark], name: str) -> None:
    """Raise `InvalidError` if a mark of ``name`` cannot be kept beside those that are."""
    if name not in marks and sum(mark.kept for mark in marks.values()) >= MAX_KEPT_MARKS:
        raise InvalidError(
            f"a table remembers the commits of at most {MAX_KEPT_MARKS} applications; forget one", outcome="not_applied"
        )


def few(marks: Mapping[str, Mark], floor: int) -> tuple[Mapping[str, Mark], int]:
    """At most `MAX_MARKS` of them, and the floor then."""
    if len(marks) <= MAX_MARKS:
        return marks, floor
    passing = sorted((mark.version, name) for name, mark in marks.items() if not mark.kept)
    forgotten = passing[: len(marks) - MAX_MARKS]
    names = {name for _, name in forgotten}
    return {name: mark for name, mark in marks.items() if name not in names}, max([floor, *(at for at, _ in forgotten)])
