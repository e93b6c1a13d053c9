"""What a round commits, decided from names alone: pure, so it can be read and tested as a table.

``sst_floor`` rises, and so refuses slow work, only if that frees something: an SST that nothing names, made for a
version between that low-water mark and what it may rise to. That is the version that was the head ``min_age`` ago, or
the least base of a registered compaction or ingest.

Garbage made for the very head of a database in which nothing happens would wait for ever, since an SST at the
low-water mark is safe. So once that head is old enough a version is committed above it, for the mark to rise to when
that is old.

Rule 26: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slate_async.engine.gc.head_history import Sighting
from slate_async.storage.manifest.edits.gc import AdvanceGc, registered_bases
from slate_async.storage.manifest.state import ManifestState


@dataclass(frozen=True, slots=True)
class UnnamedSst:
    """An SST in the store that nothing names."""

    key: str
    base_version: int
    size: int


def with_floor(edit: AdvanceGc, trial: ManifestState, aged: Sighting, unnamed: Sequence[UnnamedSst]) -> AdvanceGc:
    """``edit`` with a low-water mark that frees of ``unnamed`` what it can. ``trial``: the head with it applied."""
    bases = [sst.base_version for sst in unnamed if sst.base_version >= trial.sst_floor]
    limit = min([aged.version, trial.version, *registered_bases(trial)])
    if any(base < limit for base in bases):
        return replace(edit, floor=limit)
    idle_for_long = aged.version == trial.version
    return replace(edit, above=trial.version) if idle_for_long and trial.version in bases else edit
