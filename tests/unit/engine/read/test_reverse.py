"""`slate_async.engine.read.reverse`: whole keys, whatever the batches."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from slate_async.codec.columns import Columns
from slate_async.engine.read import reverse
from slate_async.engine.read.merge import MergedRows
from slate_async.engine.read.reverse import WholeKeys
from tests.read_model import Version, columns, newest_first, versions


def drawn(rng: random.Random, keys: int) -> list[Columns]:
    """Batches from the end; some hold one version of each of their keys and say so."""
    batches: list[list[Version]] = []
    for key in range(keys):
        rows = newest_first(Version(b"%03d" % key, b"", seq) for seq in range(rng.choice([1, 1, 1, 4])))
        cut = rng.randrange(len(rows)) if batches and rng.random() < 0.7 else len(rows)
        if cut < len(rows):
            batches[-1] += rows[:cut]
            rows = rows[cut:]
        batches += [rows[i : i + 3] for i in range(0, len(rows), 3)]
    made = []
    last_key = b""
    for rows in (rows for rows in batches if rows):
        distinct = len({row.key for row in rows}) == len(rows)
        seen_from = max(row.seq for row in rows) if distinct and rows[0].key != last_key else None
        made.append(replace(columns(rows), seen_from=seen_from))
        last_key = rows[-1].key
    return made[::-1]


@pytest.mark.parametrize("seed", range(30))
async def test_keys_stay_whole(seed: int) -> None:
    batches = drawn(random.Random(seed), keys=40)

    async def stream() -> AsyncIterator[Columns]:
        for batch in batches:
            yield batch

    found = [versions(batch) async for batch in WholeKeys(stream())]
    assert [row for rows in found[::-1] for row in rows] == [row for b in batches[::-1] for row in versions(b)]
    owners = [key for rows in found for key in {row.key for row in rows}]
    assert len(owners) == len(set(owners)), "a key is spread over batches"


async def test_batches_that_every_reader_sees_pass_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[MergedRows] = []

    def merged(*arguments: object, **more: object) -> MergedRows:
        made.append(MergedRows(*arguments, **more))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(reverse, "MergedRows", merged)
    whole = [replace(columns([Version(b"%d" % i, b"", i)]), seen_from=i) for i in range(9, 0, -1)]
    batches = [*whole[:4], replace(whole[4], seen_from=None), *whole[5:]]

    async def stream() -> AsyncIterator[Columns]:
        for batch in batches:
            yield batch

    found = [batch async for batch in WholeKeys(stream())]
    assert found[:4] == whole[:4]
    assert found[-3:] == whole[-3:]
    assert [row.key for batch in found for row in versions(batch)[::-1]] == [b"%d" % i for i in range(9, 0, -1)]
    assert len(made) == 1
