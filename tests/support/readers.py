"""What tests of readers share."""

from __future__ import annotations

import slate_async as slate
from tests.engine import until


async def poll(reader: slate.DbReader) -> None:
    """As when the time for it has come."""
    rounds = reader.metrics()["reader.rounds"]
    polling = reader._polling
    assert polling is not None
    polling.poll_due()
    await until(lambda: reader.metrics()["reader.rounds"] > rounds and not polling.polling, "the poll")
