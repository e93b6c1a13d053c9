"""Which objects of a collection are needed by nobody, and why.

Ordering rules (C24), kept by the types: merged files are listed and those in flight noted (`Listed`), THEN the head is
read (`Listed.at`), THEN every version from the lowest needed one to that head is read (`Picture.of`). A version that is
missing ends the round: somebody else collects; it is not a version without batches.

Ordering rule of deletes: of a deleted collection the holds (`slate_async.collections.core.sweep`), then pending
batches, merged files, versions, so what is left names nothing that is missing to those who may read it.

Rules C5, C7, C17, C18 and C22 to C25, C27 and C30 of collections.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from slate_async.collections.core import chain
from slate_async.collections.core.area import Area
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import HashedFrontier, NamedFrontier


@dataclass(frozen=True, slots=True)
class MergedFile:
    """An object of the merged area.

    batch: the name of its batch, which differs from its own if it is a part
    upper: of its batch, as the name says it, or as the object does if that has a hash in its place
    """

    key: str
    batch: str
    epoch: int
    upper: NamedFrontier
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class PendingFile:
    """An object of the pending area. Its name says all that its deletion is decided by (C5): of a part, too.

    upper: ``None`` in ``compare`` collections, whose names say the lower frontier only
    """

    key: str
    lower: Frontier
    upper: Frontier | None
    nbytes: int = 0


class Why(Enum):
    """Why an object is garbage."""

    MERGED = "all readers read its times in the merged area"
    STALE = "it lies before the end of the merged area, where nobody looks"
    UNREACHABLE = "no version that is needed names it"
    OLD_VERSION = "no reader and no later one needs this version"


@dataclass(frozen=True, slots=True)
class Garbage:
    """An object to delete. ``nbytes``: its size, 0 if that is not known."""

    key: str
    why: Why
    nbytes: int = 0


def lowest_needed(published: Area, held: Iterable[int]) -> int:
    """C17: versions below it are needed by nobody.

    published: a head that was read before the holds were listed; its floor is what registering readers compare with
    held: the versions of all leased holds that stand, listed after it was read. Nobody reads a deleted collection,
    whatever holds it"""
    return published.version if published.deleted else min((published.floor, *held))


@dataclass(frozen=True, slots=True)
class Listed:
    """What was listed, and then what was in flight (C22), before the head was read.

    in_flight: names of batches of this epoch that were put, or are to be put, and whose commits are not resolved
    """

    lowest: int
    files: tuple[MergedFile, ...]
    in_flight: frozenset[str]

    def at(self, head: Area) -> Wanted:
        """After the head was read."""
        return Wanted(self, head)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The head after a listing. ``versions``: to be read, all of them (C24)."""

    listed: Listed
    head: Area

    @property
    def versions(self) -> Sequence[int]:
        """From the lowest needed one to the one before the head. Version 0 is not stored and names nothing."""
        return needed_versions(self.listed.lowest, self.head.version)


def needed_versions(lowest: int, head: int) -> Sequence[int]:
    """C24: EVERY version that may be read besides the head."""
    return range(max(lowest, 1), head)


@dataclass(frozen=True, slots=True)
class Picture:
    """All that one round of collecting decides by. ``active``: names of the batches that some needed version names.

    cut_off: the upper of the lowest needed version
    """

    listed: Listed
    head: Area
    cut_off: Frontier
    active: frozenset[str]

    @classmethod
    def of(cls, wanted: Wanted, versions: Mapping[int, Area | None]) -> Picture | None:
        """From all `Wanted.versions` as they were read, ``None`` for one that is not there: the round ends."""
        head = wanted.head
        areas = present([versions.get(version) for version in wanted.versions])
        if areas is None:
            return None
        areas = [*areas, head]
        lowest = areas[0].upper if wanted.listed.lowest > 0 else head.lower
        active = frozenset(name for area in areas for name in area.names())
        return cls(wanted.listed, head, cut_off(lowest, head.upper), active)

    def dead_pending(self, files: Iterable[PendingFile]) -> Iterator[Garbage]:
        """C5, C7, C25: what is below the cut-off, by its name alone."""
        for file in files:
            why = self._why_dead(file)
            if why is not None:
                yield Garbage(file.key, why, file.nbytes)

    def _why_dead(self, file: PendingFile) -> Why | None:
        if file.upper is None:
            return Why.STALE if chain.is_dead(file.lower, self.cut_off) else None
        return Why.MERGED if file.upper <= self.cut_off else None

    def unnamed(self, epoch: int) -> Iterator[MergedFile]:
        """C22, C23: files that no needed version names. Those in flight are left out, and those of epochs above
        ``epoch``, the own one."""
        for file in self.listed.files:
            if file.batch in self.active or is_in_flight(file, self.listed.in_flight) or is_later(file, epoch):
                continue
            yield file

    def dead_merged(self, epoch: int) -> Iterator[Garbage]:
        """C30: those of them that end at or below the head."""
        for file in self.unnamed(epoch):
            if not is_beyond(file, self.head.upper):
                yield Garbage(file.key, Why.UNREACHABLE, file.nbytes)

    def unread(self, epoch: int) -> list[MergedFile]:
        """C30: those of them that must be read, for their names do not say where they end."""
        return [file for file in self.unnamed(epoch) if is_unread(file, self.head.upper)]

    def after_reading(self, files: Iterable[MergedFile]) -> Picture:
        """With what `unread` files say of themselves."""
        read = {file.key: file for file in files}
        listed = replace(self.listed, files=tuple(read.get(file.key, file) for file in self.listed.files))
        return replace(self, listed=listed)

    def old_versions(self, stored: Iterable[tuple[int, str]]) -> Iterator[Garbage]:
        """C27: versions below the lowest needed one, oldest first; ``stored``: number and key. They go last."""
        for version, key in sorted(stored):
            if version < min(self.listed.lowest, self.head.version):
                yield Garbage(key, Why.OLD_VERSION)


def present(versions: Sequence[Area | None]) -> list[Area] | None:
    """C24: all of ``versions``, or ``None`` if one is missing."""
    there = [area for area in versions if area is not None]
    return there if len(there) == len(versions) else None


def cut_off(lowest: Frontier, head: Frontier) -> Frontier:
    """C25: below which pending batches may go, of the uppers of the ``lowest`` needed version and of the ``head``. A
    reader of the lowest one reads what is beyond ITS upper in the pending area."""
    return lowest


def is_in_flight(file: MergedFile, in_flight: Collection[str]) -> bool:
    """C22: whether the commit of ``file`` is not resolved yet."""
    return file.batch in in_flight


def is_later(file: MergedFile, epoch: int) -> bool:
    """C23: whether ``file`` is of a controller that came after the one of ``epoch``."""
    return file.epoch > epoch


def is_beyond(file: MergedFile, head: Frontier) -> bool:
    """C30: whether ``file`` ends beyond the upper of the ``head``, so a version that is not there may have named it.
    One of which that is not known may."""
    return is_unread(file, head) if isinstance(file.upper, HashedFrontier) else not file.upper <= head


def is_unread(file: MergedFile, head: Frontier) -> bool:
    """C30: whether the name of ``file`` does not say if it ends beyond the upper of the ``head``."""
    return isinstance(file.upper, HashedFrontier) and not head.is_done


def beyond(files: Iterable[MergedFile], head: Area) -> list[MergedFile]:
    """C30: those of ``files`` that end beyond the upper of the ``head``, or do not say whether they do. What it names
    does not."""
    named = head.names()
    return [file for file in files if file.batch not in named and is_beyond(file, head.upper)]


@dataclass(frozen=True, slots=True)
class PendingEnds:
    """Where merged batches may end that were made of what is pending beyond the upper of a head.

    reach: how far that goes
    links: where the batches of a chain end, which is absorbed in whole batches; ``None`` of a ``definite`` collection
    """

    reach: Frontier
    links: frozenset[Frontier] | None = None

    def explain(self, upper: Frontier) -> bool:
        """Whether a batch that ends at ``upper`` may be made of it."""
        return upper <= self.reach if self.links is None else upper in self.links


def find_lost(files: Iterable[MergedFile], head: Area, ends: PendingEnds) -> MergedFile | None:
    """C30: of ``files``, listed before the ``head`` was read and ``ends`` were found, one that a version named which is
    not there: it ends beyond the head, and no batch that is pending explains that."""
    for file in beyond(files, head):
        if isinstance(file.upper, Frontier) and not ends.explain(file.upper):
            return file
    return None
