"""A writer process for the tests: writes from several tasks and reports every acknowledgement on a line of its own.

Lines: ``open EPOCH`` · ``ack TASK NUMBER`` (a put, or a batch of `BATCH_ROWS` rows: every `BATCH_EVERY`-th write) ·
``flights NUMBER`` (with ``--flights``: log objects on their way, whenever that changes) ·
``asked KEY`` (answer to a ``put KEY`` line on standard input) · ``failed TYPE OUTCOME`` · ``closed STATE CAUSE``.
With ``--standby`` it waits for its turn, and SIGTERM closes it: ``closed by itself``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys

import slate_async as slate

BATCH_EVERY = 5
BATCH_ROWS = 3
DELETE_EVERY = 7


def key_of(tag: str, task: int, number: int) -> bytes:
    return f"{tag}/{task:03}/{number:08}".encode()


def rows_of(tag: str, task: int, number: int) -> list[tuple[bytes, bytes]]:
    """What write ``number`` of ``task`` puts: one row, or a batch of several."""
    key = key_of(tag, task, number)
    value = b"value of " + key + b"." * (number % 97)
    if number % BATCH_EVERY:
        return [(key, value)]
    return [(key + b"/%d" % part, value) for part in range(BATCH_ROWS)]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def write_rows(db: slate.Db, rows: list[tuple[bytes, bytes]]) -> None:
    if len(rows) == 1:
        await db.put(*rows[0])
        return
    batch = slate.WriteBatch()
    for key, value in rows:
        batch.put(key, value)
    await db.write(batch)


async def work(db: slate.Db, tag: str, task: int, pause: float) -> None:
    number = 0
    while True:
        try:
            await write_rows(db, rows_of(tag, task, number))
        except slate.SlateError as error:
            say(f"failed {type(error).__name__} {error.outcome}")
            return
        say(f"ack {task} {number}")
        number += 1
        if pause:
            await asyncio.sleep(pause)


def report_flights(db: slate.Db) -> None:
    """Say how many log objects are on their way, at the start and at the end of every put of one."""
    log = db._writer.flusher._log
    write, in_flight = log.write, 0

    async def reported(log_id: int, data: bytes) -> None:
        nonlocal in_flight
        in_flight += 1
        say(f"flights {in_flight}")
        try:
            await write(log_id, data)
        finally:
            in_flight -= 1
            say(f"flights {in_flight}")

    log.write = reported  # type: ignore[method-assign]


async def answer(db: slate.Db) -> None:
    """Carry out ``put KEY`` lines from standard input."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := (await reader.readline()).decode().split():
        try:
            await db.put(line[1].encode(), b"asked")
        except slate.SlateError as error:
            say(f"failed {type(error).__name__} {error.outcome}")
        else:
            say(f"asked {line[1]}")


async def hand_over(db: slate.Db) -> None:
    await db.close()
    say("closed by itself")
    os._exit(0)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--metastore")
    parser.add_argument("--settings", default="{}")
    parser.add_argument("--tag", default="t")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--flights", action="store_true")
    parser.add_argument("--standby", action="store_true")
    given = parser.parse_args()
    try:
        db = await slate.open(
            given.path,
            metastore=given.metastore,
            settings=slate.Settings(**json.loads(given.settings)),
            standby=given.standby,
        )
    except slate.SlateError as error:
        say(f"refused {type(error).__name__} {error}")
        return
    say(f"open {db.status().epoch}")
    if given.flights:
        report_flights(db)
    tasks = [asyncio.create_task(work(db, given.tag, task, given.pause)) for task in range(given.tasks)]
    tasks.append(asyncio.create_task(answer(db)))
    if given.standby:
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGTERM, lambda: tasks.append(asyncio.create_task(hand_over(db)))
        )
    try:
        await db.wait_closed()
    except slate.SlateError as error:
        await asyncio.wait(tasks[:-1]) if given.tasks else None
        say(f"closed {db.status().state} {type(error).__name__}")
    await asyncio.wait(tasks)


if __name__ == "__main__":
    asyncio.run(main())
