"""A collector process for the tests.

Lines: ``open`` · ``collected OBJECTS VERSIONS`` for each round that deleted something · ``closed STATE CAUSE``.
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
    settings = slate.Settings(**json.loads(given.settings))
    try:
        collector = await slate.open_gc(given.path, metastore=given.metastore, settings=settings)
    except slate.SlateError as error:
        say(f"closed unopened {type(error).__name__} {error}")
        return
    say("open")
    try:
        async for report in collector.rounds():
            if report.objects or report.manifest_versions:
                say(f"collected {len(report.objects)} {report.manifest_versions}")
    except slate.SlateError as error:
        say(f"closed failed {type(error).__name__} {error}")


if __name__ == "__main__":
    asyncio.run(main())
