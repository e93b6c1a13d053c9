"""A compactor process for the tests.

Lines: ``open EPOCH`` · ``KIND ID`` for each event of a compaction · ``closed STATE CAUSE``.
"""

from __future__ import annotations

import argparse
import asyncio
import json

import slate_async as slate
from tests.integration.writer import say


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--metastore")
    parser.add_argument("--settings", default="{}")
    given = parser.parse_args()
    try:
        compactor = await slate.open_compactor(
            given.path,
            metastore=given.metastore,
            settings=slate.Settings(**json.loads(given.settings)),
            progress=lambda event: say(f"{event.kind} {event.id}"),
        )
    except slate.SlateError as error:
        say(f"refused {type(error).__name__} {error}")
        return
    say(f"open {compactor.status().epoch}")
    try:
        await compactor.wait_closed()
    except slate.SlateError as error:
        say(f"closed {compactor.status().state} {type(error).__name__}")


if __name__ == "__main__":
    asyncio.run(main())
