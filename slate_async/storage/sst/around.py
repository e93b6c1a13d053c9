"""`Around`: the keys near one that a single block tells all of."""

from __future__ import annotations

from typing import NamedTuple

from slate_async.storage.format.filter import Filter
from slate_async.storage.sst.loaded_block import LoadedBlock


class Around(NamedTuple):
    """Keys from ``start`` to ``end`` (exclusive) that one block alone may hold: the block, if it is cached, and the
    filter of the SST, if it has one."""

    start: bytes
    end: bytes
    block: LoadedBlock | None
    filter: Filter | None
