"""Rules of tables, each with the way to break it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from metastores.protocol import Committed
from slate_async.commits import WriteOutcome
from slate_async.objectstore.protocol import CREATE
from slate_async.tables.codec.link import StoredLink, digest_of, encode_link, encode_whole
from slate_async.tables.core import chain as core_chain
from slate_async.tables.core import edits, group
from slate_async.tables.core.chain import Contents
from slate_async.tables.core.group import Group, Member
from slate_async.tables.core.head import Head, LinkRef
from slate_async.tables.core.names import link_key, whole_key
from slate_async.tables.core.row_ids import RowIds
from slate_async.tables.looks import Look
from slate_async.tables.store.chain import Chain
from slate_async.tables.store.heads import TableHeads
from slate_async.tables.store.judged_heads import JudgedHeads
from slate_async.tables.store.operation import Operation
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.rules.tables_upkeep_table import UPKEEP_SWITCHES
from tests.simulation.scenarios.tables.forgotten import FORGOTTEN_MARK
from tests.simulation.scenarios.tables.play import TABLES

ALL_FAULTS, _, CALM = TABLES
_settle, _write = Group.settle, TableHeads.write
_block, _found = JudgedHeads._block, Look.found


def no_mark(self: Group, head: Head, contents: Contents | None = None) -> Sequence[Member]:
    """Operations are applied again, whatever is in."""
    mine = {self._writer, *(member.append_id.mark for member in self.members if member.append_id is not None)}
    seen = replace(head, marks={name: mark for name, mark in head.marks.items() if name not in mine})
    return _settle(self, seen, contents)


def no_marks_floor(self: Group, head: Head) -> None:
    """What was forgotten counts as not committed."""
    self._began = head.version


async def first_link(self: TableHeads, old: Head | None, new: Head) -> WriteOutcome[Head]:
    """An attempt takes the link of the one before."""
    if old is not None and new.change is not None:
        commit = next((name, mark.n) for name, mark in new.marks.items() if mark.version == new.version)
        links: dict[Any, LinkRef] = self.__dict__.setdefault("first_links", {})
        if commit not in links:
            links[commit] = await self._chain.put(old, new.change)
        new = new.with_link(links[commit])
    return await _write(self, old, new)


async def head_first(self: TableHeads, old: Head | None, new: Head) -> WriteOutcome[Head]:
    """The link is put when the head has it."""
    if old is None or new.change is None:
        return await _write(self, old, new)
    chain = self._chain
    data = encode_link(StoredLink(new.uuid, old.link, new.change))
    ref = LinkRef(link_key(old.version, self._runtime.ids.token()), len(data), digest_of(data), new.change.whole)
    outcome = await _write(self, old, new.with_link(ref))
    if isinstance(outcome, Committed):
        await chain._store.put(ref.key, data, mode=CREATE)
    return outcome


def ids_from_zero(blocks: pa.Table, next_row: int) -> tuple[pa.Table, int]:
    """Each commit gives the same ids."""
    placed, _ = core_chain.placed(blocks, 0)
    return placed, next_row + blocks.num_rows


async def beside_the_wrong_link(self: Chain, head: Head) -> str | None:
    """A whole link stands beside the one before that whose chain it is."""
    if len(head.links) < 2:
        return None
    contents = await self.contents(head)
    key = head.links[1].key
    data = encode_whole(key, StoredLink(self._uuid, None, contents.as_link()))
    await self._store.put(whole_key(key), data)
    return key


async def same_block(self: JudgedHeads, small: Sequence[Operation], head: Head) -> pa.Table:
    """Small appends keep the block that was put first, whoever of them is in."""
    return await _block(self, small, head) if self._shared is None else self._shared[1]


async def looked_once(self: Look, head: Head, contents: Contents) -> RowIds:
    """What was added since the first look is not looked at."""
    return self._found if len(self._seen) else await _found(self, head, contents)


def no_name(ids: pa.Table, name: str, now_ms: int) -> None:
    """No plain string is found."""


def _switch(name: str, rule: str, broken: str, patch: Patch, within: int, stage: Any = ALL_FAULTS) -> Switch:
    return Switch(f"tables-{name}", rule, broken, (patch,), within=within, stage=stage)


TABLE_SWITCHES: Sequence[Switch] = (
    _switch("mark", "T1", "a commit is repeated without looking for its mark", Patch(Group, "settle", no_mark), 40),
    _switch(
        "marks-floor",
        "T2",
        "an attempt without an answer is repeated although its mark may be forgotten",
        Patch(Group, "_give_up", no_marks_floor),
        10,
        FORGOTTEN_MARK,
    ),
    _switch(
        "own-link", "T4", "an attempt takes the link of the one before", Patch(TableHeads, "write", first_link), 40
    ),
    _switch("link-first", "T4", "a link is put once a head names it", Patch(TableHeads, "write", head_first), 40),
    _switch(
        "whole",
        "T9",
        "a whole link has more than the chain beside which it stands",
        Patch(Chain, "put_whole", beside_the_wrong_link),
        20,
    ),
    _switch(
        "plain-name", "T1", "a plain append_id is not looked for in links", Patch(group, "outcome_of", no_name), 40
    ),
    _switch(
        "shared-block",
        "T1",
        "small appends share the block that was put first, whichever of them is in",
        Patch(JudgedHeads, "_block", same_block),
        400,
    ),
    _switch(
        "look-again",
        "T16",
        "an upsert does not look at what was added since it looked",
        Patch(Look, "found", looked_once),
        40,
    ),
    _switch("row-ids", "T13", "each commit gives the same row ids", Patch(edits, "placed", ids_from_zero), 20, CALM),
    *UPKEEP_SWITCHES,
)
