"""What transactions read and wrote, and whether there is an order in which they could have run one after another.

Lists: a transaction appends its own number to lists that it has read, so a list's final value is the order of its
writes, and what a transaction read says after which of them, and before which, it ran.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from tests.simulation.checkers import Violation

ListOfIds = tuple[int, ...]


def encoded(ids: ListOfIds) -> bytes:
    """A list as a value."""
    return b",".join(b"%d" % number for number in ids)


def decoded(value: bytes | None) -> ListOfIds:
    """The list that ``value`` is; an absent one is empty."""
    return tuple(map(int, value.split(b","))) if value else ()


@dataclass(slots=True)
class Txn:
    """reads: lists as they were seen; appends: to which its number was added
    outcome: ``ok``: acknowledged as durable; ``refused``: certainly not applied
    began, ended: seconds; of one that was not acknowledged it never ends
    seq: the number of its last row, 0 if nobody has noted it
    """

    id: int
    who: str
    began: float
    reads: dict[bytes, ListOfIds] = field(default_factory=dict)
    appends: set[bytes] = field(default_factory=set)
    outcome: Literal["ok", "refused", "unknown"] = "unknown"
    ended: float = float("inf")
    seq: int = 0

    def __str__(self) -> str:
        return f"{self.id} ({self.who}, {self.outcome}: read {self.reads}, appended to {sorted(self.appends)})"


class Ledger:
    """All transactions of a run. ``ingested``: lists that ingests begin, one each; nobody else appends to one before it
    is there."""

    def __init__(self) -> None:
        self.txns: dict[int, Txn] = {}
        self.ingested: list[bytes] = []

    def begin(self, who: str, now: float) -> Txn:
        """A new one."""
        txn = Txn(len(self.txns) + 1, who, now)
        self.txns[txn.id] = txn
        return txn

    def check(self, final: Mapping[bytes, ListOfIds]) -> None:
        """Raise `Violation` unless ``final`` is what the transactions can have made, in some order."""
        for key, ids in final.items():
            if len(set(ids)) < len(ids):
                raise Violation("twice", f"{key!r} is {ids}")
        committed = self._committed(final)
        for txn in committed.values():
            for key, seen in txn.reads.items():
                if final.get(key, ())[: len(seen)] != seen:
                    raise Violation("lost-read", f"{txn} saw {key!r} as it never was: {final.get(key, ())}")
        graph: dict[int, set[int]] = {number: set() for number in committed}
        for before, after in self._edges(final, committed):
            graph[after].add(before)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            cycle = " <- ".join(str(committed[number]) for number in reversed(error.args[1]))
            raise Violation("cycle", cycle) from None

    def _committed(self, final: Mapping[bytes, ListOfIds]) -> dict[int, Txn]:
        """Those whose appends are there, and those that were acknowledged."""
        there: dict[int, set[bytes]] = {}
        for key, ids in final.items():
            for number in ids:
                there.setdefault(number, set()).add(key)
        for txn in self.txns.values():
            found = there.get(txn.id, set())
            if found and found != txn.appends:
                raise Violation("torn", f"{txn}: only {sorted(found)} are there")
            if txn.outcome == "ok" and found != txn.appends:
                raise Violation("lost-append", str(txn))
            if txn.outcome == "refused" and found:
                raise Violation("refused", f"{txn} is there")
        return {txn.id: txn for txn in self.txns.values() if txn.outcome == "ok" or txn.id in there}

    @staticmethod
    def _edges(final: Mapping[bytes, ListOfIds], committed: Mapping[int, Txn]) -> Iterator[tuple[int, int]]:
        """Pairs of which the first one ran before the second."""
        for ids in final.values():
            yield from itertools.pairwise(ids)
        for txn in committed.values():
            for key, seen in txn.reads.items():
                order = final.get(key, ())
                if seen:
                    yield seen[-1], txn.id
                if len(seen) < len(order) and order[len(seen)] != txn.id:
                    yield txn.id, order[len(seen)]
        writers = [txn for txn in committed.values() if txn.appends]
        yield from _in_time(writers)
        numbered = sorted((txn.seq, txn.id) for txn in writers if txn.seq and txn.outcome == "ok")
        yield from itertools.pairwise(number for _, number in numbered)


def _in_time(writers: Sequence[Txn]) -> Iterator[tuple[int, int]]:
    """One that was acknowledged before another began. A fenced writer's reads may be older: only writers count."""
    for before in writers:
        if before.outcome == "ok":
            for after in writers:
                if before.ended < after.began:
                    yield before.id, after.id
