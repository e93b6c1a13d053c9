"""When the floor rises, and how far: a table of heads, sightings and SSTs that nothing names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

import pytest

from metastores.protocol import VersionRef
from slate_async.engine.gc.head_history import NEVER, Sighting
from slate_async.engine.gc.plan import UnnamedSst, with_floor
from slate_async.storage.manifest.edits.gc import AdvanceGc
from slate_async.storage.manifest.state import Compaction, ManifestState

HEAD = ManifestState(
    database_id=UUID(int=7),
    log_protocol="contiguous",
    wal_enabled=True,
    created_ms=0,
    ref=VersionRef(20, "a" * 32),
    sst_floor=5,
)
NOTHING = AdvanceGc(0, 0)


@dataclass(frozen=True)
class Case:
    """Bases of unnamed SSTs, the version that was the head long enough ago, bases of compactions; what is decided."""

    name: str
    unnamed: tuple[int, ...]
    aged: int
    decided: AdvanceGc = NOTHING
    compactions: tuple[int, ...] = ()


CASES = [
    Case("nothing to free", (), 12),
    Case("nothing is known yet", (6, 8), 0),
    Case("garbage below what was the head", (6, 15), 12, AdvanceGc(0, 0, floor=12)),
    Case("garbage of that very head stays", (12,), 12),
    Case("only younger garbage", (13, 15), 12),
    Case("garbage below the floor goes without a commit", (2, 4), 12),
    Case("a compaction holds the floor", (6, 8), 12, AdvanceGc(0, 0, floor=7), compactions=(7, 9)),
    Case("a compaction holds all of it", (8, 9), 12, compactions=(7,)),
    Case("an idle head with garbage of its own", (20,), 20, AdvanceGc(0, 0, above=20)),
    Case("an idle head with older garbage, too", (6, 20), 20, AdvanceGc(0, 0, floor=20)),
    Case("an idle head without any", (), 20),
    Case("a head that has just come", (20,), 19),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_decisions(case: Case) -> None:
    running = [Compaction(UUID(int=base), 1, base, 0, 0, False, (), (), 1, 0) for base in case.compactions]
    unnamed = [UnnamedSst(f"sst/{base}", base, 1) for base in case.unnamed]
    aged = Sighting(case.aged, 1) if case.aged else NEVER
    assert with_floor(NOTHING, replace(HEAD, compactions=tuple(running)), aged, unnamed) == case.decided
