"""Whether a stream from one database into another one applied each micro-batch once, in order: `judged`.

What is there in the end does not tell it: a batch that is applied twice leaves equal rows. The target's change feed
does, for a micro-batch is an ingest there, whose rows share a sequence number: so it must have one such group of
changes for each micro-batch of Spark's checkpoint, with the newest change of each key between its two offsets, as the
change feed of the source has them. `keep` the target's changes before the stream begins.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

import slate_async as slate

SUBSCRIPTION = "exactly once"


class Batch(NamedTuple):
    """The changes of a micro-batch: how many, and the sum of the CRC-32 of each."""

    changes: int
    crcs: int


async def keep(path: str, metastore: str | None = None) -> None:
    """Retain all changes of the database from now on, whatever is compacted."""
    async with (
        slate.open_reader(path, metastore=metastore) as reader,
        reader.changes(subscription=SUBSCRIPTION, from_seq="now"),
    ):
        pass


def offsets(checkpoint: Path) -> list[int]:
    """The sequence numbers of the source where micro-batches end, of those that Spark has committed."""
    numbers = sorted(int(done.name) for done in (checkpoint / "commits").iterdir() if done.name.isdecimal())
    if numbers != list(range(len(numbers))):
        raise ValueError(f"{checkpoint} does not have all its micro-batches any more: {numbers}")
    ends = [(checkpoint / "offsets" / str(number)).read_text().splitlines()[-1] for number in numbers]
    return [int(json.loads(end)["seq"]) for end in ends]


async def streamed(
    path: str, ends: list[int], metastore: str | None = None, subscription: str | None = None
) -> list[Batch]:
    """The micro-batches that end at ``ends``, as a sink has them that keeps the newest change of each key. Empty ones
    are left out. ``subscription``: what retains the changes from the beginning; without, ``retention_ms`` does."""
    async with slate.open_reader(path, metastore=metastore) as reader:
        async with reader.changes(from_seq=0, until_seq=ends[-1], initial="error", subscription=subscription) as feed:
            return await _grouped(feed.batches(), lambda seq: bisect_left(ends, seq))


async def applied(path: str, metastore: str | None = None) -> list[Batch]:
    """What came into the database since `keep`, by sequence number, in order."""
    async with slate.open_reader(path, metastore=metastore) as reader:
        async with reader.changes(subscription=SUBSCRIPTION, follow=False, initial="error") as feed:
            return await _grouped(feed.batches(), lambda seq: seq)


async def _grouped(batches: AsyncIterator[pa.RecordBatch], group_of: Callable[[int], int]) -> list[Batch]:
    """The newest changes of each key, by ``group_of`` their numbers."""
    found: list[Batch] = []
    group, newest = -1, dict[bytes, int]()

    def end() -> None:
        if newest:
            found.append(Batch(len(newest), sum(newest.values())))
            newest.clear()

    async for batch in batches:
        for seq, (key, crc) in zip(batch.column("seq").to_pylist(), _crcs(batch), strict=True):
            if group_of(seq) != group:
                end()
                group = group_of(seq)
            newest[key] = crc
    end()
    return found


def _crcs(batch: pa.RecordBatch) -> list[tuple[bytes, int]]:
    """Of each change its key, and the CRC-32 of all of it that a sink keeps."""
    columns = [batch.column(name).to_pylist() for name in ("op", "key", "value", "expire_time")]
    return [
        (key, zlib.crc32(repr((op, expires)).encode(), zlib.crc32(value or b"", zlib.crc32(key))))
        for op, key, value, expires in zip(*columns, strict=True)
    ]


def judged(expected: list[Batch], found: list[Batch]) -> str | None:
    """What is wrong with ``found``, in words; ``None`` if it is as ``expected``."""
    for number, (wanted, there) in enumerate(zip(expected, found, strict=False)):
        if wanted != there:
            again = " again" if there in found[:number] else ""
            return f"in place of batch {number}, {wanted}, comes{again} {there}"
    if len(expected) != len(found):
        return f"{len(found)} batches came in, not {len(expected)}"
    return None
