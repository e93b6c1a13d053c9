"""The parts of rule 34, each with the way to break it: between which operands nobody reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.compaction import folding
from slate_async.engine.compaction.folding import Folding
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


def _switch(name: str, broken: str, patch: Patch, within: int) -> Switch:
    return Switch(f"34-{name}", "34", broken, (patch,), within=within, stage=CALM)


MERGE_SWITCHES: Sequence[Switch] = (
    _switch("horizon", "operands that time travel reads are folded", Patch(Folding, "__init__", past_the_horizon), 60),
    _switch("bottom", "operands become a value above other levels", Patch(Folding, "__init__", anywhere), 60),
    _switch("expiry", "operands of unequal expiry are folded", Patch(folding._Work, "expiry", one_expiry), 60),
)
