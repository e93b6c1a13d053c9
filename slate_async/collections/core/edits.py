"""Edits of the merged area: pure functions from a version to the next one, judged on the head each time (C20, C21).

Each leaves a mark in what it makes: a token, the name of a batch, an upper frontier. Applied to a version that carries
its mark it returns ``None``: it is in. An edit of an epoch that is over raises `FencedError`, one of a deleted
collection `ClosedError`, one that can never apply again `ConflictError`.

Every edit keeps what `slate_async.collections.core.area.check_successor` checks (C26).

Rules C16, C17, C20, C21, C26, C28 and C29 of collections.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slate_async.collections.core import spine
from slate_async.collections.core.area import Area, MergedBatch, find_neighbours
from slate_async.collections.core.bounds import spanning
from slate_async.collections.core.frontier import DONE, MAX_ELEMENTS, Frontier
from slate_async.errors import ClosedError, ConflictError, FencedError, InternalError


def check_epoch(area: Area, epoch: int) -> None:
    """C20: raise unless ``epoch`` is still the controller's."""
    check_open(area)
    if area.epoch != epoch:
        raise FencedError(f"controller epoch {area.epoch} took over from epoch {epoch}", outcome="not_applied")


def check_open(area: Area) -> None:
    """Raise `ClosedError` if the collection was deleted."""
    if area.deleted:
        raise ClosedError("the collection was deleted", outcome="not_applied")


@dataclass(frozen=True, slots=True)
class Claim:
    """Become the controller: the next epoch, owned by ``token``."""

    token: str

    def apply(self, area: Area) -> Area | None:
        """Its mark is the token."""
        if area.token == self.token:
            return None
        check_open(area)
        return area.following(epoch=area.epoch + 1, token=self.token)


@dataclass(frozen=True, slots=True)
class Absorb:
    """Take in ``batch``: all that was pending from its lower to its upper.

    last: token of the pending batch that ends it"""

    epoch: int
    batch: MergedBatch
    last: str

    def apply(self, area: Area) -> Area | None:
        """Applies iff the upper of ``area`` is what it was absorbed from (C21). Its mark is its name, or an upper that
        has passed it: a merge has taken it in since."""
        check_epoch(area, self.epoch)
        if is_absorbed(area, self.batch):
            return None
        if not begins_at_upper(area, self.batch):
            raise ConflictError(
                f"{self.batch.name} was absorbed from {self.batch.bounds.lower}, and the collection ends at"
                f" {area.upper}",
                outcome="not_applied",
            )
        if not self.batch.bounds.since <= area.since:
            raise InternalError(f"{self.batch.name} is compacted beyond since {area.since}")
        longer = area.following(batches=(*area.batches, self.batch), upper=self.batch.bounds.upper, last=self.last)
        return spine.refuelled(longer, self.batch)


def is_absorbed(area: Area, batch: MergedBatch) -> bool:
    """C21: whether ``batch`` is in: under its name, or as part of a merged batch."""
    return batch.name in area.names() or batch.bounds.upper <= area.upper


def begins_at_upper(area: Area, batch: MergedBatch) -> bool:
    """C21: whether ``batch`` was absorbed from where ``area`` ends."""
    return area.upper == batch.bounds.lower


@dataclass(frozen=True, slots=True)
class ReplaceMerged:
    """Put ``output`` in the place of the neighbours called ``inputs``, oldest first."""

    epoch: int
    inputs: tuple[str, ...]
    output: MergedBatch

    def apply(self, area: Area) -> Area | None:
        """Applies iff the inputs are neighbours still (C21). Its mark is its name. A result that does not fit its
        inputs is a bug: it would change what the collection holds."""
        check_epoch(area, self.epoch)
        if self.output.name in area.names():
            return None
        place = find_neighbours(area.batches, self.inputs)
        if place is None:
            raise ConflictError(f"the inputs of {self.output.name} were merged already", outcome="not_applied")
        check_result(area, area.batches[place], self.output)
        batches = (*area.batches[: place.start], self.output, *area.batches[place.stop :])
        merged = area.following(batches=batches, since=area.since.join(self.output.bounds.since))
        return spine.refuelled(merged)


def check_result(area: Area, inputs: tuple[MergedBatch, ...], output: MergedBatch) -> None:
    """Raise `InternalError` unless ``output`` may stand for ``inputs``: the same times, no more rows, the same sum of
    diffs, and compacted no further than the bound that was published (C16)."""
    whole = spanning([batch.bounds for batch in inputs])
    bounds = output.bounds
    if (bounds.lower, bounds.upper) != (whole.lower, whole.upper):
        raise InternalError(f"{output.name} does not hold the times of its inputs, {whole.lower} to {whole.upper}")
    if not whole.since <= bounds.since or not bounds.since <= area.bound:
        raise InternalError(
            f"{output.name} is compacted to {bounds.since}; its inputs to {whole.since}, the bound is {area.bound}"
        )
    if output.rows > sum(batch.rows for batch in inputs):
        raise InternalError(f"{output.name} has more rows than its inputs")
    if output.diff_sum != sum(batch.diff_sum for batch in inputs):
        raise InternalError(f"the diffs of {output.name} do not add up to those of its inputs")


@dataclass(frozen=True, slots=True)
class Publish:
    """Say what the holds allow that were listed before, and take in what is pending, in one version.

    meet: of the sinces of all of them (C16); ``None`` without holds: the bound stays (C29)
    oldest: the lowest version that a leased one has (C17); ``None`` without: no version is needed but the new one
    absorb: of the same round; left out if it is in, but not if it can never apply
    """

    epoch: int
    meet: Frontier | None
    oldest: int | None
    absorb: Absorb | None = None

    def apply(self, area: Area) -> Area | None:
        """Its mark is that bound and floor are there. What would take one of them back is left as it is (C26)."""
        check_epoch(area, self.epoch)
        absorbed = None if self.absorb is None else self.absorb.apply(area)
        bound = area.bound if self.meet is None else raised(area.bound, self.meet)
        is_in = area.floor == area.version if self.oldest is None else area.floor >= self.oldest
        if absorbed is None and bound == area.bound and is_in:
            return None
        new = area.following() if absorbed is None else absorbed
        # a hold may name a version that is newer than the head this is judged on; the commit will show that it is old
        floor = new.version if self.oldest is None else max(area.floor, min(self.oldest, new.version))
        return replace(new, bound=bound, floor=floor)


def raised(bound: Frontier, meet: Frontier) -> Frontier:
    """``bound`` taken up to ``meet``; as it is while that would take more elements than a frontier should have."""
    joined = bound.join(meet.coarsened())
    return joined if len(joined.elements) <= MAX_ELEMENTS else bound


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Delete the collection: nothing is in it from now on, and nothing is committed to it any more but this version.

    held: the holds that stand, for which it is refused; none if it is forced. The next epoch, so that what the
    controller of before has in flight is garbage of an epoch that is over."""

    token: str
    held: tuple[str, ...] = ()

    def apply(self, area: Area) -> Area | None:
        """Its mark is the tombstone, of any token."""
        if area.deleted:
            return None
        if self.held:
            shown = ", ".join(self.held[:5]) + (", …" if len(self.held) > 5 else "")
            raise ConflictError(
                f"readers hold the collection ({len(self.held)}): {shown}; expire them, or force it",
                outcome="not_applied",
            )
        ended = _ended(area)
        return replace(ended, epoch=area.epoch + 1, token=self.token, deleted=True, floor=ended.version)


@dataclass(frozen=True, slots=True)
class Finalize:
    """End a collection that is closed, and whose holds have all given up the last time: since becomes done."""

    epoch: int

    def apply(self, area: Area) -> Area | None:
        """Applies iff the upper is done and so is the bound; else there is nothing to do. To be committed only if that
        was published before the holds were listed (`slate_async.collections.core.sweep.may_end`, C16)."""
        check_epoch(area, self.epoch)
        if area.is_ended or not (area.upper.is_done and area.bound.is_done):
            return None
        return _ended(area)


def _ended(area: Area) -> Area:
    return area.following(upper=DONE, since=DONE, bound=DONE, batches=(), fuel=())
