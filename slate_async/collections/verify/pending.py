"""The pending area: every batch read whole, how far they reach, and whether the merged area took in what they hold.

From the upper of the lowest version that is kept (the *cut-off*) nothing may be deleted. So what is pending reaches
from there to where the merged area ends, without a gap, and its differences add up to those that were absorbed.

Rules C4, C5, C7, C21 and C25 of collections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.area import Area
from slate_async.collections.core.chain import is_dead
from slate_async.collections.core.coverage import Taken, extend
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import COMPARE_SHARD, PendingName
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.store.pending import Listed
from slate_async.collections.verify.batch import BatchCheck, CheckedBatch, PendingFound
from slate_async.collections.verify.report import found_in
from slate_async.errors import CorruptionError
from slate_async.runtime.concurrent import map_bounded
from slate_async.types import Finding

BATCHES_AT_ONCE = 4
DESCRIBED_AT_ONCE = 16
CHAIN_STEPS = 1_000
"""So many batches are looked up that were appended while the others were listed."""
AREA = "pending_batches/"


@dataclass(slots=True)
class CheckedPending:
    """The result.

    batches: that were read whole
    reach: up to where the merged area and what is pending go without a gap; ``None`` if the head is damaged
    links: where the batches of a chain end from there on; ``None`` of a ``definite`` collection
    missing: counts only under a hold that stood"""

    batches: int = 0
    rows: int = 0
    reach: Frontier | None = None
    links: frozenset[Frontier] | None = None
    findings: list[Finding] = field(default_factory=list)
    missing: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)


class PendingCheck:
    """Of what was listed after ``head`` was read.

    lowest: the lowest version that is kept; ``None`` if it could not be read
    head: ``None`` if it is damaged: then only the bytes are checked"""

    def __init__(
        self, context: ReaderContext, lowest: Area | None, head: Area | None, on_object: Callable[[str], None]
    ) -> None:
        self._context = context
        self._lowest = lowest if lowest is not None else head
        self._is_lowest = lowest is not None
        self._head = head
        self._on_object = on_object
        self._compare = context.appends is Appends.COMPARE
        self._checked = CheckedPending()
        self._blind = False  # whether a batch is there whose bounds are not known

    async def check(self, listed: Sequence[Listed]) -> CheckedPending:
        """Read all that is live. Raises `UnavailableError`."""
        own = [each for each in listed if not self._is_foreign(each)]
        live = [each for each in own if not self._is_garbage(each)]
        found = await self._described([each for each in live if each.name.part is None])
        taken = await self._reached(found)
        if self._compare:
            self._checked.links = frozenset(extent.end for extent in taken)
        starts = {extent.batch.key: extent for extent in taken}
        batches = await map_bounded(lambda batch: self._read(batch, starts.get(batch.key)), found, BATCHES_AT_ONCE)
        self._unnamed_parts(live, batches)
        self._unlike_each_other(batches)
        self._absorbed(taken, batches)
        return self._checked

    def _is_foreign(self, listed: Listed) -> bool:
        name = listed.name
        if (name.upper is None) != self._compare:
            self._note(listed, "it is of another kind of appends than the collection's; nobody looks at it")
            return True
        if isinstance(name.lower, Frontier) and isinstance(name.upper, Frontier) and not name.lower <= name.upper:
            self._note(listed, "its name has a lower bound beyond the upper listed; nobody looks at it")
            return True
        return False

    def _is_garbage(self, listed: Listed) -> bool:
        """Whether it may be deleted, by its name (C5, C7, C25)."""
        lower, upper = listed.name.lower, listed.name.upper
        if self._lowest is None:
            return False
        cut_off = self._lowest.upper
        if upper is None:
            dead = isinstance(lower, Frontier) and is_dead(lower, cut_off)
        else:
            dead = isinstance(upper, Frontier) and upper <= cut_off
        if dead:
            self._note(listed, "the merged area holds its times for all readers; a controller deletes it")
        return dead

    async def _described(self, live: Sequence[Listed]) -> list[PendingFound]:
        """Whole batches with their bounds, by their names or by what they say."""

        async def bounded(listed: Listed) -> PendingFound | None:
            lower, upper = listed.name.lower, listed.name.upper
            if isinstance(lower, Frontier) and isinstance(upper, Frontier):
                return PendingFound(listed.key, listed.name, lower, upper)
            return await self._describe(listed.name)

        found = await map_bounded(bounded, live, DESCRIBED_AT_ONCE) if live else []
        return [batch for batch in found if batch is not None and not self._is_covered(batch)]

    def _is_covered(self, batch: PendingFound) -> bool:
        """`_is_garbage` of a batch whose name has a hash in the place of a bound."""
        if self._lowest is None:
            return False
        return is_dead(batch.lower, self._lowest.upper) if self._compare else batch.upper <= self._lowest.upper

    async def _describe(self, name: PendingName, *, listed: bool = True) -> PendingFound | None:
        key = str(name)
        try:
            said = await self._context.answered(f"a look at {key}", lambda: self._context.pending.describe(name))
        except CorruptionError as error:
            self._checked.findings.append(found_in(self._context.store, error))
            self._blind = True
            return None
        if said is not None:
            return PendingFound(key, name, said.lower, said.upper)
        if listed and self._lowest is not None:
            self._checked.missing.append(Finding(key, None, "was listed, and is missing"))
            self._blind = True
        return None

    async def _reached(self, found: list[PendingFound]) -> list[Taken[PendingFound]]:
        """Which batches take coverage on from the cut-off; ``found`` grows by those that a chain has besides."""
        head, lowest = self._head, self._lowest
        if head is None or lowest is None:
            return []
        self._checked.reach = head.upper
        if self._compare:
            taken = await self._chain(found, lowest.upper)
            coverage = taken[-1].end if taken else lowest.upper
        else:
            extension = extend(lowest.upper, found)
            taken, coverage = list(extension.taken), extension.coverage
            for batch in found:
                if not batch.lower <= coverage:
                    what = f"it begins beyond {coverage}, where all that is pending ends: an append before it is not in"
                    self._checked.notes.append(Finding(batch.key, None, what))
        self._checked.reach = head.upper.join(coverage)
        if not self._blind and not head.upper <= coverage:
            what = (
                f"it goes from {lowest.upper} to {coverage} only, and version {head.version} took in all up to"
                f" {head.upper}: batches are missing that readers may need"
            )
            self._checked.missing.append(Finding(AREA, None, what))
        return taken

    async def _chain(self, found: list[PendingFound], at: Frontier) -> list[Taken[PendingFound]]:
        """The chain from ``at`` on, and as a finding whatever lies beside it (C7)."""
        by_lower = {batch.lower: batch for batch in found}
        taken: list[Taken[PendingFound]] = []
        steps = 0
        while not at.is_done:
            link = by_lower.pop(at, None)
            if link is None and by_lower and steps < CHAIN_STEPS:  # it may have been put while others were listed
                steps += 1
                link = await self._describe(PendingName(COMPARE_SHARD, at, None), listed=False)
                found += [link] if link is not None else []
            if link is None:
                break
            if not at < link.upper:
                self._find(link, f"it leads from {link.lower} to {link.upper}, which is no step of the chain")
                break
            taken.append(Taken(link, at, link.upper))
            at = link.upper
        if not self._blind:
            for batch in by_lower.values():
                self._find(batch, f"it is on no chain: the one from the merged area goes to {at} without {batch.lower}")
        return taken

    async def _read(self, found: PendingFound, taken: Taken[PendingFound] | None) -> CheckedBatch:
        until = None if self._head is None else self._head.upper
        checked = await BatchCheck(self._context, found, None if taken is None else taken.start, until).check()
        self._on_object(found.key)
        for key in checked.parts:
            self._on_object(key)
        self._checked.batches += checked.whole
        self._checked.rows += checked.rows
        self._checked.findings += checked.findings
        if self._lowest is not None:
            self._checked.missing += checked.missing
        return checked

    def _unnamed_parts(self, live: Sequence[Listed], batches: Sequence[CheckedBatch]) -> None:
        named = {key for checked in batches for key in checked.parts}
        for part in live:
            if part.name.part is not None and part.key not in named:
                self._note(part, "no batch names this part: of an append that goes on, or that was given up")

    def _unlike_each_other(self, batches: Sequence[CheckedBatch]) -> None:
        """All writers of a definite collection write the same."""
        known: dict[tuple[Frontier, Frontier], CheckedBatch] = {}
        for checked in batches:
            if checked.whole:
                first = known.setdefault((checked.found.lower, checked.found.upper), checked)
                if first.diff_sum != checked.diff_sum:
                    what = (
                        f"its differences add up to {checked.diff_sum}, those of {first.found.key} to {first.diff_sum}"
                    )
                    self._find(checked.found, f"{what}: two writers wrote different updates at the same times")

    def _absorbed(self, taken: Sequence[Taken[PendingFound]], batches: Sequence[CheckedBatch]) -> None:
        """What the merged area took in since the lowest version that is kept, with what was pending then."""
        head, lowest = self._head, self._lowest
        if head is None or lowest is None or not self._is_lowest or head.is_ended:
            return
        by_key = {checked.found.key: checked for checked in batches}
        reached = [by_key[extent.batch.key] for extent in taken]
        if not self._blind and all(checked.whole for checked in reached) and not self._checked.missing:
            pending = sum(checked.taken_sum for checked in reached)
            merged = sum(batch.diff_sum for batch in head.batches) - sum(batch.diff_sum for batch in lowest.batches)
            if pending != merged:
                what = (
                    f"what was absorbed from {lowest.upper} to {head.upper} adds up to {merged}, and what is pending"
                    f" there to {pending}"
                )
                self._checked.findings.append(Finding(f"version {head.version}", None, what))
        ends = [extent for extent in taken if extent.end == head.upper]
        if self._compare and ends and by_key[ends[0].batch.key].token not in ("", head.last):
            what = f"the chain comes to {head.upper} by another append than it says, {head.last}"
            self._checked.findings.append(Finding(f"version {head.version}", None, what))

    def _find(self, found: PendingFound, what: str) -> None:
        self._checked.findings.append(Finding(found.key, None, what))

    def _note(self, listed: Listed, what: str) -> None:
        self._checked.notes.append(Finding(listed.key, None, what, listed.nbytes))
