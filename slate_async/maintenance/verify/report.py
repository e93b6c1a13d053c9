"""What a verification found: plain values, safe to print or export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VerifyStage = Literal["manifest", "log", "ssts"]
"""What a verification is reading."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, or is worth knowing.

    object_name: the key of an object, or ``"manifest version N"``, ``"writer register"``
    offset: the byte at which it was noticed; ``None`` if it is about no byte
    size: the object's, in bytes, where garbage is counted
    """

    object_name: str
    offset: int | None
    what: str
    size: int | None = None


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

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings
