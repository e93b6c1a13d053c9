"""Several operations of one process as one commit, each with its own outcome.

A group is judged anew on every head that it meets. `Group.settle` finds out which operations are in already, and
`Group.apply` makes one head and one link of the others, in their order. An operation that does not apply is left out,
and fails once its group is decided; the others go on without it.

Attempts differ in which operations they hold. So each attempt has a number of its own: the mark of this process in a
head says which attempt is in, and with it which operations. Every attempt that is in was met before the next one was
made, because that extends the very head that it was judged on.

Rules T1 and T2.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import pyarrow as pa

from slate_async.errors import ConflictError, InternalError, InvalidError, NotFoundError, SlateError, UnavailableError
from slate_async.tables.core.append_ids import AppendId, FirstOutcome, counting, ids_of, outcome_of
from slate_async.tables.core.chain import Contents, Link
from slate_async.tables.core.edits import LOOK_AGAIN, Write
from slate_async.tables.core.head import Head, Mark
from slate_async.tables.core.marks import FORGOTTEN, check_room, few


class TableEdit(Protocol):
    """What a commit changes: a pure function, safe to apply again after any conflict."""

    def apply(self, head: Head) -> Head:
        """``head`` after it, but for version, time and marks. Raises `ConflictError` or `InvalidError` when it can
        never apply again."""


class Outcome(NamedTuple):
    """Of an operation that is in.

    version: that it made; ``None`` if it was in before a later one of the same application
    duplicate: it was in already
    rows: of the operation, or of the one that was in
    """

    version: int | None
    duplicate: bool
    rows: int


@dataclass(slots=True, eq=False)
class Member:
    """One operation, and how it ended: ``outcome``, or ``failure`` once it is decided.

    edit: may change until the group is applied to a head; that of a small append is in `Group.share`
    small: its rows are in a block that it shares with the other small ones
    replaces: the edit makes a whole link
    sent: it was part of an attempt
    """

    edit: TableEdit
    append_id: AppendId | None = None
    rows: int = 0
    small: bool = False
    replaces: bool = False
    outcome: Outcome | None = None
    failure: Exception | None = None
    sent: bool = False


@dataclass(slots=True)
class _Draft:
    """A head in the making, on which the operations are applied one after another."""

    head: Head
    link: Link | None = None
    changed: bool = False
    shared: bool = False

    def add(self, edit: TableEdit) -> None:
        """Raises what the edit raises, and changes nothing then."""
        after = edit.apply(replace(self.head, change=None))
        if after.change is not None:
            self.link = after.change if self.link is None else self.link.then(after.change)
        self.head, self.changed = replace(after, change=None), True


class Group:
    """See the module docstring.

    writer: this process; ``numbers``: of its attempts, rising over all of its groups
    members: no two of one application or with one name
    unanswered: attempts, as writer and number, without an answer
    """

    def __init__(
        self,
        writer: str,
        numbers: Iterator[int],
        members: Sequence[Member],
        now_ms: int,
        unanswered: Container[tuple[str, int]],
    ) -> None:
        self.members = members
        self._writer = writer
        self._numbers = numbers
        self._now_ms = now_ms
        self._unanswered = unanswered
        self._attempts: dict[int, list[tuple[Member, Outcome]]] = {}
        self._began: int | None = None
        self._judged: tuple[int, str] | None = None
        self._contents: Contents | None = None
        self._open: Sequence[Member] = ()
        self._shared: Write | None = None

    @property
    def needs_contents(self) -> bool:
        """Whether `settle` has to be given what the head has: plain strings are found there, and a whole link has all
        that count."""
        return any(
            member.replaces or (member.append_id is not None and member.append_id.n is None) for member in self.left
        )

    @property
    def left(self) -> list[Member]:
        """Those that are not decided."""
        return [member for member in self.members if member.outcome is None and not _lost(member)]

    @property
    def attempts(self) -> list[tuple[str, int]]:
        """All of them so far, as writer and number."""
        return [(self._writer, number) for number in self._attempts]

    def settle(self, head: Head, contents: Contents | None = None) -> Sequence[Member]:
        """Judge it by ``head``, which has ``contents``; returns those that are to be applied to that head."""
        self._judged, self._contents, self._shared = (head.version, head.token), contents, None
        self._began = head.version if self._began is None else self._began
        self._recognise(head)
        if head.marks_floor > self._began:
            self._give_up(head)
        now_ms = max(head.time_ms, self._now_ms)
        for member in self.left:
            member.failure = None
            first = _first_outcome(member.append_id, head, contents, now_ms)
            if first is not None:
                member.outcome = Outcome(first.version, True, first.rows)
        self._open = self._admitted(head)
        return self._open

    def share(self, block: pa.Table) -> None:
        """All small ones that `settle` returned are in ``block``, as `BLOCK` has it."""
        self._shared = Write(block)

    def refuse(self, member: Member, failure: SlateError) -> None:
        """``member``, which is not small, cannot be applied to the head by which it was settled."""
        member.failure = failure
        self._open = [other for other in self._open if other is not member]

    def apply(self, head: Head) -> Head | None:
        """The successor of ``head``, or ``None`` if nothing applies. Raises `ConflictError` if it was not settled by
        that head."""
        if self._judged != (head.version, head.token):
            raise ConflictError("it was judged by another version", outcome="not_applied", reason=LOOK_AGAIN)
        draft = _Draft(head)
        applied: list[Member] = []
        for member in self._open:
            try:
                self._add(member, draft)
            except SlateError as error:
                member.failure = error
            else:
                applied.append(member)
        if not draft.changed:
            return None
        version, number = head.version + 1, next(self._numbers)
        self._attempts[number] = [(member, Outcome(version, False, member.rows)) for member in applied]
        for member in applied:
            member.sent = True
        return self._made(draft, version, number)

    def finish(self, head: Head) -> None:
        """Decide all: ``head`` was committed, or is the newest one and nothing applies to it."""
        self._recognise(head)
        for member in self.left:
            if member.failure is None:
                member.failure = InternalError("a commit ended, and an operation of it did not")

    def fail(self, error: Exception) -> None:
        """Decide all that is left: the commit failed. What was part of an attempt may be in unless ``error`` knows."""
        for member in self.left:
            failure = copy(error) if isinstance(error, SlateError) else UnavailableError(f"a commit failed: {error!r}")
            maybe = member.sent and (failure.outcome != "not_applied" or self._may_be_in(member))
            failure.outcome = "unknown" if maybe else "not_applied"
            failure.__cause__ = error
            member.failure = failure

    def _may_be_in(self, member: Member) -> bool:
        return any(
            (self._writer, number) in self._unanswered
            for number, attempt in self._attempts.items()
            if any(sent is member for sent, _ in attempt)
        )

    def _recognise(self, head: Head) -> None:
        """The attempt that is in, if one of them is (rule T1)."""
        mark = head.marks.get(self._writer)
        for member, outcome in () if mark is None else self._attempts.get(mark.n, ()):
            if member.outcome is None:
                member.outcome = outcome

    def _give_up(self, head: Head) -> None:
        """Marks that were there when it began may be forgotten: attempts without an answer end unknown (rule T2). Those
        that have a name of their own are recognised by that."""
        for member in self.left:
            if member.append_id is None and self._may_be_in(member):
                member.failure = ConflictError(
                    f"commits up to version {head.marks_floor} cannot be recognised any more, and this one began at"
                    f" {self._began}; see whether it is in",
                    outcome="unknown",
                    reason=FORGOTTEN,
                )
        self._began = head.version

    def _admitted(self, head: Head) -> list[Member]:
        """Those left of whose application there is a mark, or room for one."""
        admitted, marks = [], dict(head.marks)
        for member in self.left:
            named = member.append_id
            try:
                if head.dropped:
                    raise NotFoundError("the table was dropped", outcome="not_applied")
                if named is not None and named.n is not None:
                    check_room(marks, named.mark)
                    marks[named.mark] = Mark(named.n, head.version + 1, kept=True)
            except InvalidError as error:
                member.failure = error
            else:
                admitted.append(member)
        return admitted

    def _add(self, member: Member, draft: _Draft) -> None:
        if not member.small:
            draft.add(member.edit)
        elif not draft.shared:
            if self._shared is None:
                raise InternalError("small appends share a block, and there is none")
            draft.add(self._shared)
            draft.shared = True

    def _made(self, draft: _Draft, version: int, number: int) -> Head:
        """The head of an attempt, with its marks and names."""
        time_ms, link = max(draft.head.time_ms, self._now_ms), draft.link
        marks, ids = {**draft.head.marks, self._writer: Mark(number, version)}, []
        for member, _ in self._attempts[number]:
            named = member.append_id
            if named is not None and named.n is not None:
                marks[named.mark] = Mark(named.n, version, kept=True, rows=member.rows)
            elif named is not None:
                ids.append((named.app, time_ms, version, member.rows))
        if ids or (link is not None and link.whole):
            link, before = link or Link(), self._contents or Contents()
            listed = ids_of(ids)
            link = replace(link, ids=counting(pa.concat_tables([before.ids, listed])) if link.whole else listed)
        kept, floor = few(marks, draft.head.marks_floor)
        made = replace(draft.head, version=version, time_ms=time_ms, marks=kept, marks_floor=floor)
        return replace(made, change=link, token="")


def _lost(member: Member) -> bool:
    """Whether it ended unknown already."""
    return isinstance(member.failure, ConflictError) and member.failure.reason == FORGOTTEN


def _first_outcome(named: AppendId | None, head: Head, contents: Contents | None, now_ms: int) -> FirstOutcome | None:
    """How the operation ended that had this name; ``None`` if none is in."""
    if named is None:
        return None
    if named.n is None:
        if contents is None:
            raise InternalError("plain strings are found in what a version has")
        return outcome_of(contents.ids, named.app, now_ms)
    mark = head.marks.get(named.mark)
    if mark is None or mark.n < named.n:
        return None
    return FirstOutcome(mark.version, mark.rows) if mark.n == named.n else FirstOutcome(None, 0)
