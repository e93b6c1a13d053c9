"""One process that uses a collection, in one of several roles, until it is killed:

    lake_worker.py ROLE PATH [--metastore M] [--settings JSON] [--writer NAME] [--tag TAG] [--seed N]

Roles and their lines (``failed TYPE MESSAGE`` in all of them, then it goes on or begins anew):

* ``writer``: ``open UPPER`` · ``ack LOWER UPPER DATA``
* ``listener``, ``lagger``, ``snapshots``, ``cloner``, ``critical``: ``open SINCE`` · ``at UPPER DIGEST``, of all that
  was written at times before UPPER
* ``controller``: ``epoch N`` · ``ended TYPE``

What is written. ``definite``: `rows_at` each time, whoever writes. ``compare``: each append says by whom it is.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import sys
from collections import Counter, deque
from collections.abc import Mapping

import pyarrow as pa

import slate_async as slate

COLLECTION = "orders"
WINDOW = 40
"""In a definite collection data are retracted so many times later."""
IN_FLIGHT = 4
COUNT = b"count"

Row = tuple[bytes, int, int]


def rows_at(time: int) -> list[Row]:
    """What everybody writes at ``time`` to a definite collection."""
    rows = [(b"%d" % time, time, 1), (COUNT, time, 1)]
    return rows if time < WINDOW else [*rows, (b"%d" % (time - WINDOW), time, -1)]


def contents_before(upper: int) -> dict[bytes, int]:
    """All that `rows_at` gives at times before ``upper``, added up."""
    found = {b"%d" % time: 1 for time in range(max(0, upper - WINDOW), upper)}
    return found if upper == 0 else {**found, COUNT: upper}


def digest(contents: Mapping[bytes, int]) -> str:
    """Of contents, which have no zeros."""
    text = b"\n".join(b"%s %d" % row for row in sorted(contents.items()))
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def failed(error: BaseException) -> None:
    say(f"failed {type(error).__name__} {str(error)[:300]!r}")


def number(frontier: slate.Frontier) -> int:
    """A frontier of u64 times that is not done."""
    return frontier.elements[0][0]


class Worker:
    """One role in one process."""

    def __init__(self, collection: slate.Collection, writer: str, tag: str, rng: random.Random) -> None:
        self._collection = collection
        self._writer = writer
        self._tag = tag
        self._rng = rng

    # ---- writers

    async def writer(self) -> None:
        compare = (await self._collection.info()).appends == "compare"
        while True:
            try:
                async with self._collection.writer(self._writer) as writer:
                    say(f"open {writer.upper}")
                    await (self._append_one_by_one(writer) if compare else self._append_some(writer))
            except slate.SlateError as error:
                failed(error)
                await asyncio.sleep(0.2)

    async def _append_some(self, writer: slate.collections.Writer) -> None:
        """Appends of several times each, some of them in flight."""
        flying: deque[asyncio.Task[None]] = deque()
        at = number(writer.upper)
        try:
            while True:
                upper = at + self._rng.randint(1, 4)
                flying.append(asyncio.create_task(self._append(writer, at, upper)))
                at = upper
                if len(flying) == IN_FLIGHT:
                    await flying.popleft()
                await asyncio.sleep(self._rng.uniform(0.01, 0.1))
        finally:
            await asyncio.gather(*flying, return_exceptions=True)

    async def _append(self, writer: slate.collections.Writer, lower: int, upper: int) -> None:
        rows = [row for time in range(lower, upper) for row in rows_at(time)]
        await writer.append(rows, lower=lower, upper=upper)
        say(f"ack {lower} {upper} -")

    async def _append_one_by_one(self, writer: slate.collections.Writer) -> None:
        appended = 0
        while True:
            at = number(writer.upper)
            data = f"{self._tag}-{appended}@{at}"
            try:
                await writer.append([(data.encode(), at, 1), (COUNT, at, 1)], lower=at, upper=at + 1)
            except slate.UpperMismatchError:
                continue  # another writer was first
            say(f"ack {at} {at + 1} {data}")
            appended += 1
            await asyncio.sleep(self._rng.uniform(0.01, 0.2))

    # ---- readers

    async def listener(self, slow: float = 0.0) -> None:
        """Follows; after its lease was lost it goes on where it was, if it still can."""
        contents: Counter[bytes] | None = None
        upper = 0
        while True:
            try:
                async with self._collection.reader(f"listener {self._tag}") as reader:
                    say(f"open {reader.since}")
                    if contents is None or not number(reader.since) < max(upper, 1):
                        contents = Counter()
                        deltas = reader.subscribe(number(reader.since))
                    else:
                        deltas = reader.listen(start=upper)
                    async for delta in deltas:
                        add(contents, delta.updates)
                        upper = number(delta.upper)
                        say(f"at {upper} {digest(contents)}")
                        if self._rng.random() < 0.5:
                            await reader.downgrade_since(delta.upper)
                        if slow:
                            await asyncio.sleep(self._rng.uniform(0, slow))
            except slate.SlateError as error:
                failed(error)
                await asyncio.sleep(0.2)

    async def lagger(self) -> None:
        await self.listener(slow=3.0)

    async def snapshots(self) -> None:
        while True:
            try:
                async with self._collection.reader("snapshots") as reader:
                    say(f"open {reader.since}")
                    as_of = number(reader.since)
                    while True:
                        as_of += await self._snapshot(reader, as_of)
                        if self._rng.random() < 0.3:
                            await reader.downgrade_since(as_of)
            except slate.SlateError as error:
                failed(error)
                await asyncio.sleep(0.2)

    async def cloner(self) -> None:
        """Reads by clones of clones, whose sources it gives up."""
        while True:
            try:
                reader = await self._collection.reader("cloner")
                try:
                    say(f"open {reader.since}")
                    as_of = number(reader.since)
                    while True:
                        other = await reader.clone("clone")
                        await reader.expire()
                        reader = other
                        as_of += await self._snapshot(reader, as_of)
                        await reader.downgrade_since(as_of)
                finally:
                    await reader.expire()
            except slate.SlateError as error:
                failed(error)
                await asyncio.sleep(0.2)

    async def critical(self) -> None:
        """Holds times by a name that outlives it, and gives them up once they were read."""
        begun = 0
        while True:
            try:
                held = await self._collection.critical("billing")
                say(f"open {held.since}")
                while True:
                    await held.refresh()
                    as_of = number(held.since)
                    async with await held.reader("billing") as reader:
                        as_of += await self._snapshot(reader, as_of)
                    begun += 1
                    await held.compare_and_downgrade(held.token, f"{self._tag}-{begun}", as_of)
            except slate.SlateError as error:
                failed(error)
                await asyncio.sleep(0.2)

    async def _snapshot(self, reader: slate.collections.ReadHandle, as_of: int) -> int:
        """Read at ``as_of``; how far the next one may be beyond it."""
        async with await reader.snapshot(as_of) as snapshot:
            contents: Counter[bytes] = Counter()
            add(contents, await snapshot.to_arrow())
            say(f"at {as_of + 1} {digest(contents)}")
            await asyncio.sleep(self._rng.uniform(0, 0.3))
            return self._rng.randint(0, max(1, number(snapshot.upper) - as_of))

    # ---- controllers

    async def controller(self) -> None:
        while True:
            try:
                async with self._collection.controller() as controller:
                    say(f"epoch {controller.epoch}")
                    say(f"ended {type(await controller.wait_ended()).__name__}")
            except slate.SlateError as error:
                failed(error)
            await asyncio.sleep(self._rng.uniform(0.5, 3))


def add(contents: Counter[bytes], updates: pa.Table) -> None:
    """``updates`` to ``contents``."""
    for data, diff in zip(updates.column("data").to_pylist(), updates.column("_diff").to_pylist(), strict=True):
        contents[data] += diff
        if not contents[data]:
            del contents[data]


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role")
    parser.add_argument("path")
    parser.add_argument("--metastore")
    parser.add_argument("--settings", default="{}")
    parser.add_argument("--writer", default="main")
    parser.add_argument("--tag", default="t")
    parser.add_argument("--seed", default="0")
    given = parser.parse_args()
    settings = slate.CollectionSettings(**json.loads(given.settings))
    async with slate.open_collections(given.path, metastore=given.metastore, settings=settings) as lake:
        worker = Worker(lake.collection(COLLECTION), given.writer, given.tag, random.Random(given.seed))
        await getattr(worker, given.role)()


if __name__ == "__main__":
    asyncio.run(main())
