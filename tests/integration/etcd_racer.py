"""A process that adds to a counter in an etcd's register, and reports the outcome of each addition.

``etcd_racer.py METASTORE_URL NAME ADDITIONS``: one line for each: ``committed``, ``conflict`` or ``unknown``.
"""

from __future__ import annotations

import asyncio
import sys

from metastores.errors import MetaStoreUnavailableError
from metastores.factories import parse_metastore
from metastores.protocol import Committed, Conflict
from metastores.runtime import MetaRuntime
from metastores.testing import MemoryObjects


async def main(url: str, name: str, additions: int) -> None:
    """Add, so many times."""
    factory = parse_metastore(url, runtime=MetaRuntime(request_timeout=1.0))
    register = factory.register(MemoryObjects(), name)
    done = 0
    while done < additions:
        try:
            cell = await register.read()
            value = b"%d" % (1 if cell is None else int(cell.value) + 1)
            outcome = await register.compare_and_set(None if cell is None else cell.tag, value)
        except MetaStoreUnavailableError:
            continue
        if isinstance(outcome, Committed):
            done += 1
            print("committed", flush=True)
        else:
            print("conflict" if isinstance(outcome, Conflict) else "unknown", flush=True)
    await factory.close()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
