"""Any program of edits gives what a plain model of rows gives, at every version that is kept."""

from __future__ import annotations

import itertools
from collections.abc import Container
from dataclasses import dataclass, field, replace
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.errors import ConflictError, NotFoundError
from slate_async.tables.core import edits
from slate_async.tables.core.append_ids import AppendId
from slate_async.tables.core.chain import BLOCK, Contents
from slate_async.tables.core.group import Group, Member, TableEdit
from slate_async.tables.core.head import Head, Job, Kept, LinkRef, Mark, check_successor
from slate_async.tables.core.marks import FORGOTTEN, MAX_KEPT_MARKS, MAX_MARKS
from slate_async.tables.core.names import block_key, link_key
from slate_async.tables.core.row_ids import contained, no_rows, set_of
from slate_async.tables.core.schema import TableSchema

SCHEMA = TableSchema.of(pa.schema([("a", pa.int64())]))
STEPS = ("append", "delete", "update", "overwrite", "merge", "restore", "alter", "tag", "pin", "release", "expire")
TOKENS = itertools.count()


def block(base: int, rows: int, first: int = -1, last: int = -1, *, carried: bool = False) -> dict[str, object]:
    key = block_key(base, f"{next(TOKENS):032x}")
    row = {"key": key, "first_row": first, "last_row": last, "carried": carried, "rows": rows, "size": rows * 10}
    return row | {"footer_size": 1, "footer_hash": bytes(16), "chunk_sums": b"", "schema_id": 0}


def blocks(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=BLOCK)


def group_of(member: Member, writer: str = "x", number: int = 1, unanswered: Container[tuple[str, int]] = ()) -> Group:
    return Group(writer, itertools.count(number), [member], 1_000, unanswered)


def applied(member: Member, head: Head) -> Head:
    """``head`` after it alone."""
    group = group_of(member)
    group.settle(head)
    after = group.apply(head)
    assert after is not None
    return after


@dataclass
class Model:
    """A table, and beside it the rows of each version as a plain set; `carried`: the rows of merged blocks."""

    head: Head = field(default_factory=lambda: Head.first(UUID(int=1), SCHEMA, 0))
    contents: list[Contents] = field(default_factory=lambda: [Contents(), Contents()])
    rows: list[set[int]] = field(default_factory=lambda: [set(), set()])
    carried: dict[str, list[int]] = field(default_factory=dict)
    sent: list[Group] = field(default_factory=list)
    given: int = 0

    def commit(self, edit: TableEdit, rows: set[int]) -> None:
        marked = group_of(Member(edit), f"w{len(self.sent) % 3}", len(self.sent) // 3 + 1)
        marked.settle(self.head, self.contents[-1])
        new = marked.apply(self.head)
        assert new is not None
        check_successor(self.head, new)
        contents = self.contents[-1]
        if new.change is not None:
            contents = contents.after(new.change)
            key = link_key(self.head.version, f"{next(TOKENS):032x}")
            new = new.with_link(LinkRef(key, 1, bytes(16), new.change.whole))
        assert marked.settle(new, contents) == [], "a commit that is in changes nothing"
        self.head = new
        self.sent.append(marked)
        self.contents.append(contents)
        self.rows.append(rows)

    def live(self, version: int) -> set[int]:
        contents = self.contents[version]
        stored = [row for at in contents.blocks.to_pylist() for row in self._rows_of(at)]
        assert len(stored) == len(set(stored)), "a row is in two blocks"
        ids = set_of(stored)
        return set(ids[~contained(ids, contents.deleted)].tolist())

    def _rows_of(self, at: dict[str, int]) -> list[int]:
        key = str(at["key"])
        return self.carried[key] if at["carried"] else list(range(at["first_row"], at["last_row"] + 1))

    def add(self, data: st.DataObject) -> tuple[pa.Table, set[int]]:
        sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
        base = data.draw(st.integers(self.head.floor, self.head.version))
        fresh = set(range(self.head.next_row, self.head.next_row + sum(sizes)))
        return blocks([block(base, size) for size in sizes]), fresh

    def some(self, data: st.DataObject) -> set[int]:
        seen = self.rows[data.draw(st.integers(1, self.head.version))]  # what the deleter looked at may be old
        return set(data.draw(st.lists(st.sampled_from(sorted(seen)), unique=True))) if seen else set()

    def merge(self, data: st.DataObject) -> None:
        contents = self.contents[-1]
        listed = contents.blocks.to_pylist()
        if not listed:
            return
        inputs = data.draw(st.lists(st.sampled_from(listed), min_size=1, unique_by=lambda at: at["key"]))
        stored = sorted(row for at in inputs for row in self._rows_of(at))
        ids = set_of(stored)
        dead = contained(ids, contents.deleted)
        rows = ids[~dead].tolist()
        out = [block(self.head.version, len(rows), rows[0], rows[-1], carried=True)] if rows else []
        if out:
            self.carried[str(out[0]["key"])] = rows
        keys = pa.array([at["key"] for at in inputs], pa.string())
        made = edits.ReplaceBlocks(blocks(out), keys, ids[dead], self.head.lineage, self.head.removals, contents)
        self.commit(made, self.rows[-1])
        with pytest.raises(ConflictError):  # its inputs are not live any more
            made.apply(self.head)

    def restore(self, data: st.DataObject) -> None:
        version = data.draw(st.integers(1, self.head.version))
        edit = edits.Restore(version, self.contents[version])
        if self.head.keeps(version):
            self.commit(edit, self.rows[version])
        else:
            with pytest.raises(NotFoundError):
                edit.apply(self.head)

    def keep(self, data: st.DataObject, until_ms: int | None) -> None:
        version = data.draw(st.integers(1, self.head.version))
        edit = edits.Keep(data.draw(st.sampled_from("xyz")), Kept(version, "t", until_ms))
        if self.head.keeps(version):
            self.commit(edit, self.rows[-1])
        else:
            with pytest.raises(NotFoundError):
                edit.apply(self.head)

    def step(self, name: str, data: st.DataObject) -> None:
        now = self.rows[-1]
        if name in ("append", "update", "overwrite"):
            added, fresh = self.add(data)
            dead = self.some(data) if name == "update" else set()
            whole = name == "overwrite"
            self.commit(edits.Write(added, set_of(dead), instead=whole), fresh if whole else (now - dead) | fresh)
        elif name == "delete":
            dead = self.some(data)
            self.commit(edits.Write(deleted=set_of(dead)), now - dead)
        elif name == "merge":
            self.merge(data)
        elif name == "restore":
            self.restore(data)
        elif name == "alter":
            self.commit(edits.Alter({"add": {f"c{len(self.sent)}": pa.string()}}), now)
        elif name in ("tag", "pin"):
            self.keep(data, None if name == "tag" else data.draw(st.integers(0, 20)))
        elif name == "release":
            self.commit(edits.Release(data.draw(st.sampled_from("xyz")), data.draw(st.booleans())), now)
        else:
            oldest, floor = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))
            self.commit(edits.Expire(oldest, floor, data.draw(st.integers(0, 20))), now)


@given(st.data(), st.lists(st.sampled_from(STEPS), max_size=14))
def test_every_version_holds_the_rows_of_the_model(data: st.DataObject, program: list[str]) -> None:
    model = Model()
    ever: set[int] = set()
    for name in program:
        before = model.head.next_row
        model.step(name, data)
        given_now = set(range(before, model.head.next_row))
        assert not given_now & ever, "a row id is given twice"
        ever |= given_now
        assert model.live(model.head.version) == model.rows[-1]
        totals = model.head.totals
        assert (totals.blocks, totals.rows) == (model.contents[-1].blocks.num_rows, model.contents[-1].rows)
    for version in range(1, model.head.version + 1):
        assert model.live(version) == model.rows[version]
    for marked in model.sent:
        assert marked.settle(model.head, model.contents[-1]) == []


@given(st.data(), st.integers(0, 9), st.integers(0, 9))
def test_objects_below_the_floor_are_never_added(data: st.DataObject, floor: int, base: int) -> None:
    model = Model()
    for _ in range(10):
        model.commit(edits.Write(blocks([block(model.head.version, 1)])), model.rows[-1] | {model.head.next_row})
    model.commit(edits.Expire(0, floor, 0), model.rows[-1])
    edit = edits.Write(blocks([block(base, 1)]))
    if base >= model.head.floor:
        assert edit.apply(model.head).totals.blocks == 11
    else:
        with pytest.raises(ConflictError) as caught:
            edit.apply(model.head)
        assert (caught.value.reason, caught.value.outcome) == (edits.BELOW_FLOOR, "not_applied")


def test_an_attempt_older_than_a_forgotten_mark_ends_unknown() -> None:
    marks = {"app:app": Mark(1, 1, kept=True)} | {f"w{at}": Mark(1, at + 2) for at in range(MAX_MARKS - 1)}
    first = Head.first(UUID(int=1), SCHEMA, 0)
    head = replace(first, version=MAX_MARKS, marks=marks)
    after = applied(Member(edits.Write()), head)
    assert (len(after.marks), after.marks_floor, "w0" in after.marks) == (MAX_MARKS, 2, False)
    with_answer, without = Member(edits.Write()), Member(edits.Write())
    for member, unanswered in ((with_answer, set[tuple[str, int]]()), (without, {("late", 1)})):
        group = group_of(member, "late", 1, unanswered=unanswered)
        group.settle(first)
        assert group.apply(first) is not None
        assert group.settle(after) == ([member] if member is with_answer else [])
    assert isinstance(without.failure, ConflictError)
    assert (without.failure.outcome, without.failure.reason) == ("unknown", FORGOTTEN)
    assert applied(Member(edits.Write(), AppendId("app", 2)), after).marks["app:app"].n == 2  # never forgotten


def test_marks_that_are_kept_have_a_limit() -> None:
    marks = {f"app:{at}": Mark(1, 1, kept=True) for at in range(MAX_KEPT_MARKS)}
    head = replace(Head.first(UUID(int=1), SCHEMA, 0), marks=marks)
    member = Member(edits.Write(), AppendId("more", 1))
    group = group_of(member)
    assert group.settle(head) == []
    assert group.apply(head) is None
    group.finish(head)
    assert "forget one" in str(member.failure)
    assert applied(Member(edits.Write(), AppendId("0", 2)), head).marks["app:0"].n == 2


def test_a_merge_that_read_before_a_restore_is_refused() -> None:
    model = Model()
    model.commit(edits.Write(blocks([block(1, 2)])), {0, 1})
    model.commit(edits.Write(deleted=set_of([0])), {1})
    keys = model.contents[-1].blocks.column("key").combine_chunks()
    model.commit(edits.Restore(2, model.contents[2]), {0, 1})  # row 0 is back, which the merge is about to drop
    merge = edits.ReplaceBlocks(blocks([]), keys, set_of([0]), 0, model.head.removals, model.contents[-1])
    with pytest.raises(ConflictError, match="restored"):
        merge.apply(model.head)


def test_nothing_is_committed_to_a_dropped_table() -> None:
    model = Model()
    dropped = edits.SetDrops(1, 0).apply(model.head)
    assert dropped is not None
    member = Member(edits.Write())
    assert group_of(member).settle(dropped) == []
    assert "dropped" in str(member.failure)
    assert edits.SetDrops(1, 0).apply(dropped) is None
    back = edits.SetDrops(2, 0).apply(dropped)
    assert back is not None
    assert edits.SetDrops(1, 0).apply(back) is None, "a drop that is late"
    assert applied(Member(edits.Write()), back).version == back.version + 1


def test_a_merge_judged_by_another_version_is_to_look_again() -> None:
    model = Model()
    model.commit(edits.Write(blocks([block(1, 2)])), {0, 1})
    keys = model.contents[-1].blocks.column("key").combine_chunks()
    merge = edits.ReplaceBlocks(blocks([]), keys, no_rows(), 0, model.head.removals, model.contents[-1])
    model.commit(edits.Write(blocks([block(1, 1)])), {0, 1, 2})
    assert merge.apply(model.head).totals.rows == 1  # an append has taken nothing away
    model.commit(edits.Write(blocks([block(1, 1)]), instead=True), {3})
    with pytest.raises(ConflictError) as caught:
        merge.apply(model.head)
    assert caught.value.reason == edits.LOOK_AGAIN


def test_the_floor_stays_below_jobs_that_have_not_ended() -> None:
    model = Model()
    for _ in range(5):
        model.commit(edits.Write(blocks([block(1, 1)])), model.rows[-1] | {model.head.next_row})
    model.commit(edits.HoldFloor("load", Job(3, 100)), model.rows[-1])
    model.commit(edits.Expire(0, 6, 99), model.rows[-1])
    assert (model.head.floor, list(model.head.jobs)) == (3, ["load"])
    with pytest.raises(ConflictError) as caught:
        edits.HoldFloor("late", Job(2, 100)).apply(model.head)
    assert caught.value.reason == edits.BELOW_FLOOR
    model.commit(edits.HoldFloor("short", Job(4, 200)), model.rows[-1])
    model.commit(edits.HoldFloor("load", None), model.rows[-1])
    model.commit(edits.Expire(0, 6, 199), model.rows[-1])
    assert model.head.floor == 4
    model.commit(edits.Expire(0, 6, 200), model.rows[-1])
    assert (model.head.floor, dict(model.head.jobs)) == (6, {})
