"""One pending batch read whole, with its parts: its bytes, its updates against its bounds, its sums.

Memory: one object of 64 MiB at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from slate_async.codec.arrays import mask_array
from slate_async.collections.codec.description import Description
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import PendingName
from slate_async.collections.core.slices import one_batch
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.store.pending import part_name
from slate_async.collections.verify.report import found_in
from slate_async.collections.verify.updates import UpdatesCheck
from slate_async.collections.writer.batches import sum_of_diffs
from slate_async.errors import CorruptionError
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.types import Finding


@dataclass(frozen=True, slots=True)
class PendingFound:
    """A whole batch that was listed."""

    key: str
    name: PendingName
    lower: Frontier
    upper: Frontier


@dataclass(slots=True)
class CheckedBatch:
    """The result.

    whole: whether all of it could be read
    diff_sum: of all its updates; ``taken_sum``: of those that were absorbed from it
    token: of its append; empty if it is not known
    parts: keys of the parts that it names
    """

    found: PendingFound
    whole: bool = True
    rows: int = 0
    diff_sum: int = 0
    taken_sum: int = 0
    token: str = ""
    parts: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    missing: list[Finding] = field(default_factory=list)


class BatchCheck:
    """Of ``found``. What was absorbed from it are its rows at times beyond ``start`` (``None``: nothing) and not beyond
    ``until``."""

    def __init__(
        self, context: ReaderContext, found: PendingFound, start: Frontier | None, until: Frontier | None
    ) -> None:
        self._context = context
        self._start = start
        self._until = until
        self._checked = CheckedBatch(found)
        minimum = Frontier.minimum(context.schema.kind)
        self._updates = UpdatesCheck(context.schema, Bounds(found.lower, found.upper, minimum), compacted=False)

    async def check(self) -> CheckedBatch:
        """Read it. Raises `UnavailableError`."""
        context, checked, name = self._context, self._checked, self._checked.found.name
        try:
            pending = await context.answered(f"a read of {name}", lambda: context.pending.read(name))
        except CorruptionError as error:
            return self._torn(found_in(context.store, error))
        if pending is None:
            checked.missing.append(Finding(checked.found.key, None, "was listed, and is missing"))
            checked.whole = False
            return checked
        description = pending.description
        checked.token = description.token
        if pending.updates is not None:
            await context.runtime.offload.run(partial(self._add, pending.updates))
        await self._read_parts(name, description)
        self._compare(description)
        checked.rows, checked.diff_sum = self._updates.rows, self._updates.diff_sum
        return checked

    async def _read_parts(self, name: PendingName, description: Description) -> None:
        context, checked = self._context, self._checked
        for number in range(len(description.parts)):
            key = str(part_name(name, description, number))
            checked.parts.append(key)
            reading = partial(context.pending.part, name, description, number)
            try:
                updates = await context.answered(f"a read of {key}", reading)
            except ObjectNotFoundError:
                what = f"is missing, though {name} names it"
                checked.missing.append(Finding(key, None, what))
                checked.whole = False
            except CorruptionError as error:
                self._torn(found_in(context.store, error))
            else:
                await context.runtime.offload.run(partial(self._add, updates))

    def _add(self, table: pa.Table) -> None:
        self._updates.add(table)
        if self._start is None or self._until is None or self._until <= self._start:
            return
        updates = one_batch(table, self._context.schema.arrow)
        times = self._context.schema.times(updates)
        absorbed = self._start.mask(times) & ~self._until.mask(times)
        if absorbed.any():
            rows = updates if absorbed.all() else updates.filter(mask_array(absorbed))
            self._checked.taken_sum += sum_of_diffs(rows)

    def _compare(self, description: Description) -> None:
        checked, updates = self._checked, self._updates
        for fault in updates.faults:
            checked.findings.append(Finding(checked.found.key, None, fault))
        if not checked.whole:
            return
        for what, said, found in (
            ("it has {} updates, and says {}", description.rows, updates.rows),
            ("its differences add up to {}, and it says {}", description.diff_sum, updates.diff_sum),
        ):
            if said != found:
                checked.findings.append(Finding(checked.found.key, None, what.format(found, said)))

    def _torn(self, finding: Finding) -> CheckedBatch:
        self._checked.findings.append(finding)
        self._checked.whole = False
        return self._checked
