"""A driver of bulk ingests for the tests: batch after batch of a stream, each through a job of its own.

Lines: ``open`` · ``begun NUMBER`` · ``committed NUMBER`` · ``in NUMBER STATE`` (applied, or duplicate) ·
``late NUMBER`` (no writer has applied it) · ``failed TYPE OUTCOME``.
"""

from __future__ import annotations

import argparse
import asyncio
import json

import pyarrow as pa

import slate_async as slate
from tests.integration.writer import say

ROWS = 5
WAIT_S = 20.0


def rows_of(tag: str, number: int) -> dict[bytes, bytes]:
    """What batch ``number`` puts."""
    return {f"{tag}/{number:08}/{part}".encode(): b"%d" % number for part in range(ROWS)}


async def ingest(arguments: argparse.Namespace, settings: slate.Settings, number: int) -> None:
    """One batch; a driver that was killed in it repeats it under another name."""
    async with slate.open_ingest(arguments.path, metastore=arguments.metastore, settings=settings) as job:
        rows = rows_of(arguments.tag, number)
        say(f"begun {number}")
        await job.write([pa.table({"key": list(rows), "value": list(rows.values())})])
        await job.commit(batch=(arguments.tag, number), wait=False)
        say(f"committed {number}")
        info = await job.wait(WAIT_S)
        say(f"in {number} {info.state}")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--metastore")
    parser.add_argument("--settings", default="{}")
    parser.add_argument("--tag", required=True)
    parser.add_argument("--start", type=int, default=0)
    arguments = parser.parse_args()
    settings = slate.Settings(**json.loads(arguments.settings)).replace(sst_bytes=100, block_bytes=1)
    say("open")
    number = arguments.start
    while True:
        try:
            await ingest(arguments, settings, number)
        except slate.IngestPendingError:
            say(f"late {number}")
            return
        except slate.SlateError as error:
            say(f"failed {type(error).__name__} {error.outcome}")
            return
        number += 1


if __name__ == "__main__":
    asyncio.run(main())
