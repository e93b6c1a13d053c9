"""Many keys at once: every key walks the levels newest first, and all keys that need the store ask it together.

A round finds for each key its first level that cannot answer from memory, reads all of those concurrently, in key
order within a table so that neighbours share a block, and goes on with the keys that were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slate_async.engine.read.sources import Run, TableSource
from slate_async.runtime.gather import gather
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.format.filter import key_hash
from slate_async.types import NEEDS_IO, RowHit


async def load_tables(sources: Sequence[TableSource]) -> None:
    """Load, at once, those that are not loaded."""
    await gather([_load(source) for source in sources if not source.loaded])


async def _load(source: TableSource) -> None:
    await source.load()


async def find_many(
    levels: Sequence[Run],
    keys: Sequence[bytes],
    max_seq: int,
    yield_budget: YieldBudget,
    read: Callable[[bytes], None] = lambda key: None,
) -> dict[bytes, RowHit]:
    """The newest version of each of ``keys`` up to ``max_seq``, tombstones included, in ``levels``. Calls ``read`` with
    each key that was found in memory."""
    found: dict[bytes, RowHit] = {}
    pending: list[tuple[bytes, int, int]] = []
    unloaded: dict[int, TableSource] = {}
    for key in sorted(set(keys)):
        if yield_budget.spent():
            await yield_budget.yield_now()
        pending.append((key, key_hash(key), 0))
        for run in levels:
            table = run.find(key)
            if table is not None and not table.source.loaded:
                unloaded[id(table.source)] = table.source
    await load_tables(list(unloaded.values()))
    while pending:
        asked: list[tuple[int, bytes, int, TableSource]] = []
        for key, hashed, level in pending:
            if yield_budget.spent():
                await yield_budget.yield_now()
            source: TableSource | None = None
            while level < len(levels):
                table = levels[level].find(key)
                hit = None if table is None else table.source.probe(key, hashed, max_seq)
                if hit is NEEDS_IO and table is not None:
                    if yield_budget.exhausted():
                        await yield_budget.yield_now()
                    hit = table.source.probe(key, hashed, max_seq, True)
                if hit is NEEDS_IO:
                    source = None if table is None else table.source
                    break
                if hit is not None:
                    found[key] = hit
                    read(key)
                    break
                level += 1
            if source is not None:
                asked.append((level, key, hashed, source))
        asked.sort(key=lambda item: item[:2])
        hits = await gather([source.get(key, hashed, max_seq) for _, key, hashed, source in asked])
        pending = []
        for (level, key, hashed, _), hit in zip(asked, hits, strict=True):
            if hit is not None:
                found[key] = hit
            else:
                pending.append((key, hashed, level + 1))
        pending.sort()
    return found
