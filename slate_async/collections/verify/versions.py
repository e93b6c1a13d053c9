"""The versions of a collection's merged area: each by itself, each after the one before it, all that they name.

Rules C21, C24 and C26 of collections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from metastores.protocol import VersionRef
from slate_async.collections.core.area import Area, MergedBatch, check_area, check_successor
from slate_async.collections.core.names import parse_merged
from slate_async.collections.core.times import TimeKind
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.verify.report import found_in
from slate_async.errors import CorruptionError, InternalError
from slate_async.types import Finding


@dataclass(slots=True)
class CheckedVersions:
    """The result. ``areas``: those that could be read, in order; ``missing`` counts only under a hold that stood."""

    areas: list[Area] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    missing: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    @property
    def batches(self) -> dict[str, MergedBatch]:
        """All batches that some version names."""
        return {batch.name: batch for area in self.areas for batch in area.batches}


async def check_versions(context: ReaderContext, lowest: int, head: Area | None) -> CheckedVersions:
    """Read the versions from ``lowest`` to ``head``; all that are there if the head is damaged (``None``)."""
    checked = CheckedVersions()
    try:
        stored = await context.answered("a listing of versions", context.versions.stored)
    except CorruptionError as error:
        found = found_in(context.store, error)
        checked.findings.append(replace(found, what=f"{found.what}; versions besides the head cannot be checked"))
        checked.areas += [head] if head is not None and head.version else []
        return checked
    old = [ref for ref in stored if ref.version < lowest]
    checked.notes += [
        Finding(_name(ref.version), None, "no reader needs this version; a controller deletes it") for ref in old
    ]
    for ref in stored:
        if lowest <= ref.version and (head is None or ref.version < head.version):
            await _read(context, ref, checked)
    if head is not None:
        there = {ref.version for ref in stored}
        checked.missing += [
            Finding(_name(version), None, "is missing, though readers may need it")
            for version in range(max(lowest, 1), head.version)
            if version not in there
        ]
        checked.areas += [head] if head.version else []
    checked.findings += await context.runtime.offload.run(lambda: list(judged(checked.areas, context.schema.kind)))
    return checked


async def _read(context: ReaderContext, ref: VersionRef, checked: CheckedVersions) -> None:
    try:
        area = await context.answered(f"a read of version {ref.version}", lambda: context.versions.read(ref))
    except CorruptionError as error:
        checked.findings.append(found_in(context.store, error))
        return
    if area is None:
        checked.missing.append(Finding(_name(ref.version), None, "is missing, though readers may need it"))
    else:
        checked.areas.append(area)


def judged(areas: Sequence[Area], kind: TimeKind) -> Iterator[Finding]:
    """What is wrong with ``areas``, which are in order."""
    for area in areas:
        try:
            check_area(area)
        except InternalError as error:
            yield Finding(_name(area.version), None, str(error))
        known = set(area.names())
        if any(fuel.first not in known or fuel.last not in known for fuel in area.fuel):
            yield Finding(_name(area.version), None, "it has fuel for a merge of batches that it does not name")
        for batch in area.batches:
            said = parse_merged(batch.name, kind)
            if said is not None and said.epoch > area.epoch:
                what = f"it names {batch.name}, of a later epoch than its own, {area.epoch}"
                yield Finding(_name(area.version), None, what)
    for old, new in pairwise(areas):
        if new.version == old.version + 1:
            yield from _followed(old, new)
    yield from _named_otherwise(areas)


def _followed(old: Area, new: Area) -> Iterator[Finding]:
    """What no edit makes of ``old``."""
    try:
        check_successor(old, new)
    except InternalError as error:
        yield Finding(_name(new.version), None, str(error))
    sums = [sum(batch.diff_sum for batch in area.batches) for area in (old, new)]
    if old.upper == new.upper and not new.is_ended and sums[0] != sums[1]:
        what = (
            f"its differences add up to {sums[1]}, those of the version before to {sums[0]}, and nothing was absorbed"
        )
        yield Finding(_name(new.version), None, what)


def _named_otherwise(areas: Iterable[Area]) -> Iterator[Finding]:
    known: dict[str, MergedBatch] = {}
    for area in areas:
        for batch in area.batches:
            if known.setdefault(batch.name, batch) != batch:
                what = f"it says other things of {batch.name} than the versions before it"
                yield Finding(_name(area.version), None, what)


def _name(version: int) -> str:
    return f"version {version}"
