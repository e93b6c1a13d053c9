"""The parts of rule 34, each with the way to break it: between which operands nobody reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.read import folding
from slate_async.engine.read.folding import Folding
from slate_async.engine.write.l0_flusher import L0Flusher
from slate_async.engine.write.memtables import MemtableEntry
from slate_async.merge_operators.guarded import Guarded
from slate_async.types import MAX_SEQ
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.merges import MERGES

CALM = MERGES[1]
_init = Folding.__init__


def past_the_horizon(self: Folding, merging: Guarded, *, keep_above: int, expired_at_ms: int, bottom: bool) -> None:
    """Operands are folded that time travel reads one by one."""
    _init(self, merging, keep_above=MAX_SEQ, expired_at_ms=expired_at_ms, bottom=bottom)


def anywhere(self: Folding, merging: Guarded, *, keep_above: int, expired_at_ms: int, bottom: bool) -> None:
    """What lies below is taken for nothing."""
    _init(self, merging, keep_above=keep_above, expired_at_ms=expired_at_ms, bottom=True)


def one_expiry(self: Any, place: int) -> int:
    """Whenever a row expires, none does."""
    return NO_EXPIRY


class Unnoticed(Folding):
    """Says of no fold that it was made."""

    folded_seq = property(lambda self: 0, lambda self, seq: None)  # type: ignore[assignment]


_folding = L0Flusher._folding


def unnoticed(self: L0Flusher, entry: MemtableEntry) -> Folding | None:
    """A flush folds, and the manifest does not say that versions are missing."""
    found = _folding(self, entry)
    if found is not None:
        found.__class__ = Unnoticed
    return found


def _switch(name: str, broken: str, patch: Patch, within: int) -> Switch:
    return Switch(f"34-{name}", "34", broken, (patch,), within=within, stage=CALM)


MERGE_SWITCHES: Sequence[Switch] = (
    _switch("horizon", "operands that time travel reads are folded", Patch(Folding, "__init__", past_the_horizon), 60),
    _switch("bottom", "operands become a value above other levels", Patch(Folding, "__init__", anywhere), 60),
    _switch("flush", "history begins below what a flush folded", Patch(L0Flusher, "_folding", unnoticed), 60),
    _switch("expiry", "operands of unequal expiry are folded", Patch(folding._Work, "expiry", one_expiry), 60),
)
