"""What a verification of a collection found: plain values, safe to print or export."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from slate_async.errors import CorruptionError
from slate_async.objectstore.prefixed import whole_key
from slate_async.objectstore.protocol import ObjectStore
from slate_async.types import Finding, finding_of

CollectionStage = Literal["versions", "merged", "pending"]
"""What a verification is reading."""


@dataclass(frozen=True, slots=True)
class CollectionVerifyProgress:
    """A verification on its way: what it is at, and how much of that is done."""

    stage: CollectionStage
    objects: int
    objects_total: int
    nbytes: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class CollectionVerifyReport:
    """One verification.

    version, epoch, lower, upper, since: of the head it began with; 0 and empty if that is damaged
    reach: up to where all updates can be read, those that are pending beyond ``upper`` included. No object says how
        far writers came: if the last pending batches are lost, only this shows it, beside the upper of a writer
    versions, merged, pending, holds: versions, merged batches, pending batches and holds that were read
    rows, nbytes: of the objects of those batches
    findings: what is wrong; empty for a sound collection
    notes: what a controller will see to, files that are no collection's, and the like
    """

    name: str
    version: int
    epoch: int
    lower: str
    upper: str
    reach: str
    since: str
    versions: int
    merged: int
    pending: int
    holds: int
    rows: int
    nbytes: int
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @classmethod
    def unreadable(cls, name: str, finding: Finding) -> CollectionVerifyReport:
        """Of a collection of which nothing can be read but ``finding``."""
        return cls(name, 0, 0, "", "", "", "", 0, 0, 0, 0, 0, 0, (finding,), ())


def found_in(store: ObjectStore, error: CorruptionError) -> Finding:
    """``error`` as a finding about an object of ``store``, the folder of the life."""
    found = finding_of(error)
    return replace(found, object_name=found.object_name.removeprefix(whole_key(store, "")))
