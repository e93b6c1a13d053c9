"""One merged batch read whole: its bytes against what names them, its rows against what the version says of them.

Memory: one object of 64 MiB at most, or some row groups of a part. Everything that can be read is, whatever is damaged
before it.

Rule C15 of collections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from slate_async.collections.codec.merged_read import MergedFile
from slate_async.collections.core import names, ordering
from slate_async.collections.core.area import MergedBatch
from slate_async.collections.core.names import frontier_name
from slate_async.collections.core.slices import one_batch
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.store.merged import MergedSource
from slate_async.collections.verify.report import found_in
from slate_async.collections.verify.updates import UpdatesCheck
from slate_async.errors import CorruptionError, UnavailableError
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.runtime.backoff import Backoff
from slate_async.types import Finding

NAMED = "is missing, though a version names it"


@dataclass(slots=True)
class CheckedMerged:
    """The result. ``missing``: what counts only if the hold stood all the while (C15)."""

    rows: int = 0
    findings: list[Finding] = field(default_factory=list)
    missing: list[Finding] = field(default_factory=list)


class MergedCheck:
    """Of ``batch``. ``on_object``: called with the key of each object that was read, or could not be."""

    def __init__(self, context: ReaderContext, batch: MergedBatch, on_object: Callable[[str], None]) -> None:
        self._context = context
        self._batch = batch
        self._on_object = on_object
        self._updates = UpdatesCheck(context.schema, batch.bounds, compacted=True)
        self._whole = True
        self._checked = CheckedMerged()

    async def check(self) -> CheckedMerged:
        """Read it. Raises `UnavailableError`."""
        self._check_name()
        source = await self._opened()
        if source is not None:
            if source.edges is not None:
                self._on_object(self._batch.name)
            for part in range(len(source.parts)):
                await self._read_part(source, part)
                self._on_object(source.key(part))
            self._compare()
        self._checked.rows = self._updates.rows
        return self._checked

    def _check_name(self) -> None:
        bounds, said = self._batch.bounds, names.parse_merged(self._batch.name, self._context.schema.kind)
        if said is None or said.part is not None:
            self._find("a version names it, and it is no name of a merged batch")
        elif (frontier_name(said.lower), frontier_name(said.upper)) != (
            frontier_name(bounds.lower),
            frontier_name(bounds.upper),
        ):
            self._find(f"a version says that it is from {bounds.lower} to {bounds.upper}, unlike its name")

    async def _opened(self) -> MergedSource | None:
        context, batch = self._context, self._batch
        opening = partial(MergedSource.open, context.store, context.schema, batch, context.runtime.offload)
        try:
            return await context.answered(f"a read of {batch.name}", opening)
        except ObjectNotFoundError:
            self._checked.missing.append(Finding(batch.name, None, NAMED))
        except CorruptionError as error:
            self._checked.findings.append(found_in(self._context.store, error))
        self._on_object(batch.name)
        return None

    async def _read_part(self, source: MergedSource, part: int) -> None:
        key = source.key(part)
        try:
            file = await self._context.answered(f"a read of {key}", partial(source.file, part))
            await self._read_groups(source, part, file)
        except ObjectNotFoundError:
            self._checked.missing.append(Finding(key, None, NAMED))
            self._skip()
        except CorruptionError as error:
            self._checked.findings.append(found_in(self._context.store, error))
            self._skip()

    async def _read_groups(self, source: MergedSource, part: int, file: MergedFile) -> None:
        """All row groups that can be read."""
        group, groups = 0, len(file.groups)
        backoff: Backoff | None = None
        while group < groups:
            try:
                async for table in source.read(part, range(group, groups)):
                    edges = (group == 0, group == groups - 1)
                    await self._context.runtime.offload.run(partial(self._add, source, part, table, edges))
                    group, backoff = group + 1, None
            except CorruptionError as error:
                self._checked.findings.append(found_in(self._context.store, error))
                self._skip()
                group += 1
            except UnavailableError as error:
                backoff = backoff or self._context.backoff(f"a read of {source.key(part)}")
                await backoff.wait(error, None)

    def _add(self, source: MergedSource, part: int, table: object, edges: tuple[bool, bool]) -> None:
        updates = one_batch(table, self._context.schema.arrow)
        self._updates.add(table)
        if source.edges is None or not updates.num_rows:
            return
        known = [ordering.comparable(source.edges.column(name)) for name in self._context.schema.data.names]
        found = [ordering.comparable(updates.column(name)) for name in self._context.schema.data.names]
        for is_there, place, row, word in (
            (edges[0], 2 * part, 0, "first"),
            (edges[1], 2 * part + 1, updates.num_rows - 1, "last"),
        ):
            if is_there and ordering.key_of(known, place) != ordering.key_of(found, row):
                self._find(f"the {word} data of part {part} are others than the index says")

    def _skip(self) -> None:
        self._whole = False
        self._updates.skip()

    def _compare(self) -> None:
        """What the version says of the rows with what they are."""
        batch, updates = self._batch, self._updates
        for fault in updates.faults:
            self._find(fault)
        if not self._whole:
            return
        for what, said, found in (
            ("updates", batch.rows, updates.rows),
            ("different data", batch.keys, updates.keys),
            ("different times", batch.times, updates.times),
        ):
            if found is not None and said != found:
                self._find(f"it has {found} {what}, and a version says {said}")
        if batch.diff_sum != updates.diff_sum:
            self._find(f"its differences add up to {updates.diff_sum}, and a version says {batch.diff_sum}")

    def _find(self, what: str) -> None:
        self._checked.findings.append(Finding(self._batch.name, None, what))
