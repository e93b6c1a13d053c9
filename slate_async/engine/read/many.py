"""Many keys at once: every key walks the levels newest first, and all keys that need the store ask it together.

A round finds for each key its first level that cannot answer from memory, reads all of those concurrently, in key
order within a table so that neighbours share a block, and goes on with the keys that were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from slate_async.engine.read.sources import Run, TableSource
from slate_async.runtime.gather import gather
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.format.filter import key_hash
from slate_async.storage.format.sst import SstMeta
from slate_async.storage.sst.passing import Passing
from slate_async.types import NEEDS_IO, RowHit

KEYS_TOGETHER = 1024
TABLES_TOGETHER = 64
"""So many neighbours walk the levels together, and so many indexes are read for them. What is read is held until they
have ended, so that with a small cache, too, hardly an index is read twice."""


async def load_tables(sources: Sequence[TableSource]) -> list[SstMeta]:
    """Load, at once, those that are not loaded; they stay loaded as long as the caller holds what is returned."""
    return await gather([source.load() for source in sources if not source.loaded])


async def find_many(
    levels: Sequence[Run],
    keys: Sequence[bytes],
    max_seq: int,
    yield_budget: YieldBudget,
    read: Callable[[bytes], None] = lambda key: None,
) -> dict[bytes, RowHit]:
    """The newest version of each of ``keys`` up to ``max_seq``, tombstones included, in ``levels``. Calls ``read`` with
    each key that was found without waiting."""
    ordered = sorted(set(keys))
    search = _Search(levels, max_seq, yield_budget, read, len(ordered) if len(ordered) > KEYS_TOGETHER else None)
    pending: list[tuple[bytes, int, int]] = []
    unloaded: dict[int, TableSource] = {}
    for key in ordered:
        if yield_budget.spent():
            await yield_budget.yield_now()
        hashed = key_hash(key)
        for run in levels:
            table = run.find(key)
            if table is not None and not table.source.loaded and id(table.source) not in unloaded:
                if len(unloaded) == TABLES_TOGETHER:
                    await search.together(pending, unloaded.values())
                    pending, unloaded = [], {}
                unloaded[id(table.source)] = table.source
        if len(pending) == KEYS_TOGETHER:
            await search.together(pending, unloaded.values())
            pending, unloaded = [], {}
        pending.append((key, hashed, 0))
    await search.together(pending, unloaded.values())
    return search.found


class _Search:
    """A call's search. ``many``: so many keys in all, if they are more than go together; ``found``: the newest
    versions, as far as it has come."""

    def __init__(
        self,
        levels: Sequence[Run],
        max_seq: int,
        yield_budget: YieldBudget,
        read: Callable[[bytes], None],
        many: int | None,
    ) -> None:
        self.found: dict[bytes, RowHit] = {}
        self._levels = levels
        self._max_seq = max_seq
        self._yield_budget = yield_budget
        self._read = read
        self._many = many
        self._passing: dict[int, Passing] = {}

    async def together(self, pending: list[tuple[bytes, int, int]], unloaded: Iterable[TableSource]) -> None:
        """Find neighbours, each with its hash and the level to begin at; tables that are ``unloaded`` may hold them."""
        held = await load_tables(list(unloaded))
        while pending:
            asked = await self._look(pending)
            hits = await gather([source.get(key, hashed, self._max_seq) for _, key, hashed, source in asked])
            pending = []
            for (level, key, hashed, _), hit in zip(asked, hits, strict=True):
                if hit is not None:
                    self.found[key] = hit
                else:
                    pending.append((key, hashed, level + 1))
            pending.sort()
        self._passing.clear()
        del held

    async def _look(self, pending: list[tuple[bytes, int, int]]) -> list[tuple[int, bytes, int, TableSource]]:
        """Find what can be found without waiting. Returns which table the others have to ask: the level, the key with
        its hash, and the table, in this order."""
        asked: list[tuple[int, bytes, int, TableSource]] = []
        levels, max_seq = self._levels, self._max_seq
        passing: Passing | None = None
        for key, hashed, level in pending:
            if self._yield_budget.exhausted():  # a block may be read, which takes some ten microseconds
                await self._yield_budget.yield_now()
            while level < len(levels):
                table = levels[level].find(key)
                if table is not None:
                    source = table.source
                    if self._many is not None:
                        passing = self._passing_of(source, self._many)
                    hit = source.probe(key, hashed, max_seq, True, passing)
                    if hit is NEEDS_IO:
                        asked.append((level, key, hashed, source))
                        break
                    if hit is not None:
                        self.found[key] = hit
                        self._read(key)
                        break
                level += 1
        asked.sort(key=lambda item: item[:2])
        return asked

    def _passing_of(self, source: TableSource, many: int) -> Passing:
        found = self._passing.get(id(source))
        if found is None:
            found = self._passing[id(source)] = Passing(many)
        return found
