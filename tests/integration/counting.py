"""A database whose every state is known: write number N changes one row and says N in another, in one batch. So any
picture of it tells which state it claims to be, and whether it is exactly that. A process that writes it, one that
follows it (or reads one checkpoint again and again), one that scans it slowly:

    counting.py write|follow|scan PATH [--metastore M] [--settings JSON] [--no-pin] [--checkpoint ID] [--pause S]

Lines: ``open N`` · ``wrote N`` (durable) · ``saw N`` (a state, whole) · ``failed TYPE MESSAGE``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

import slate_async as slate

KEYS = 300
DELETE_EVERY = 11
FILLER = b"." * 1_000
COUNT = b"count"
BURST = 25


def key_of(number: int) -> bytes:
    """The row that write ``number`` changes."""
    return b"row/%04d" % (number % KEYS)


def rows_at(count: int) -> dict[bytes, bytes]:
    """All rows after ``count`` writes."""
    newest = range(max(1, count - KEYS + 1), count + 1)
    rows = {key_of(number): b"%d" % number + FILLER for number in newest if number % DELETE_EVERY}
    return {**rows, COUNT: b"%d" % count} if count else {}


def count_of(rows: dict[bytes, bytes]) -> int:
    """Which state ``rows`` are. Raises `AssertionError` if they are none."""
    count = int(rows.get(COUNT, b"0"))
    expected = rows_at(count)
    wrong = sorted(key for key in rows.keys() | expected.keys() if rows.get(key) != expected.get(key))
    assert not wrong, f"not state {count}: {[(key, rows.get(key), expected.get(key)) for key in wrong[:3]]}"
    return count


async def write_one(db: slate.Db, number: int) -> None:
    batch = slate.WriteBatch()
    if number % DELETE_EVERY:
        batch.put(key_of(number), b"%d" % number + FILLER)
    else:
        batch.delete(key_of(number))
    batch.put(COUNT, b"%d" % number)
    await db.write(batch, await_durable=False)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def write(given: argparse.Namespace, settings: slate.Settings) -> None:
    async with slate.open(given.path, metastore=given.metastore, settings=settings) as db:
        count = int(await db.get(COUNT) or b"0")
        say(f"open {count}")
        while True:
            for _ in range(BURST):
                count += 1
                await write_one(db, count)
            await db.flush(l0=count % (8 * BURST) == 0)
            say(f"wrote {count}")
            await asyncio.sleep(0.1)


async def follow(given: argparse.Namespace, settings: slate.Settings) -> None:
    async with slate.open_reader(
        given.path, checkpoint=given.checkpoint, pin=given.pin, metastore=given.metastore, settings=settings
    ) as reader:
        while True:
            try:
                rows = {key: value async for key, value in reader.scan()}
            except slate.ConflictError:
                if given.pin:
                    raise
                continue
            say(f"saw {count_of(rows)}")
            await asyncio.sleep(0.2)


async def scan(given: argparse.Namespace, settings: slate.Settings) -> None:
    async with slate.open_reader(given.path, metastore=given.metastore, settings=settings) as reader:
        while True:
            rows: dict[bytes, bytes] = {}
            async for batch in reader.scan().batches(max_rows=25):
                rows |= zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
                await asyncio.sleep(given.pause)
            say(f"saw {count_of(rows)}")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["write", "follow", "scan"])
    parser.add_argument("path")
    parser.add_argument("--metastore")
    parser.add_argument("--settings", default="{}")
    parser.add_argument("--no-pin", dest="pin", action="store_false")
    parser.add_argument("--checkpoint")
    parser.add_argument("--pause", type=float, default=0.8, help="seconds between the batches of a slow scan")
    given = parser.parse_args()
    role = {"write": write, "follow": follow, "scan": scan}[given.role]
    try:
        await role(given, slate.Settings(**json.loads(given.settings)))
    except (slate.SlateError, AssertionError) as error:
        say(f"failed {type(error).__name__} {error}")
        raise


if __name__ == "__main__":
    asyncio.run(main())
