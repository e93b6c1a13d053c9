"""What a verification found: plain values, safe to print or export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slate_async.types import Finding

VerifyStage = Literal["manifest", "log", "ssts"]
"""What a verification is reading."""


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """A verification on its way: what it is at, and how much of that is done."""

    stage: VerifyStage
    objects: int
    objects_total: int
    nbytes: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """One verification.

    manifest_version: the head it began with
    versions, log_objects, ssts: how many were read whole; ``blocks`` and ``rows`` of SSTs, ``nbytes`` of both
    range_deletes: how many compaction has not used up: the head names them, or they are in the log behind it
    findings: what is wrong; empty for a sound database
    notes: what a garbage collector will see to, and the like
    """

    manifest_version: int
    versions: int
    log_objects: int
    ssts: int
    blocks: int
    rows: int
    nbytes: int
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    range_deletes: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings
