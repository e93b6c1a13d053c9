"""A process that mirrors a checkpoint: ``mirrorer.py SOURCE METASTORE TARGET TARGET_METASTORE CHECKPOINT`` ("-": none).

It reports a line for each SST that is there, and ``done`` at the end."""

from __future__ import annotations

import asyncio
import sys

import slate_async as slate


async def main(source: str, metastore: str, target: str, target_metastore: str, checkpoint: str) -> None:
    async with slate.open_admin(source, metastore=None if metastore == "-" else metastore) as admin:
        report = await admin.mirror(
            checkpoint,
            target,
            metastore=None if target_metastore == "-" else target_metastore,
            on_progress=lambda now: print(f"{now.ssts} of {now.ssts_total}", flush=True),
        )
    print(f"done {report.copied} {report.kept}", flush=True)


asyncio.run(main(*sys.argv[1:]))
