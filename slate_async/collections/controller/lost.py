"""Whether the newest version was lost: then a merged batch ends beyond the head, and what it was made of is collected.

Ordering rule: merged files are listed, then the head is read, then what is pending is listed, then the head is read
once more. What another controller puts meanwhile is made of batches that are pending until a head has it.

Rule C30 of collections.
"""

from __future__ import annotations

import logging
from functools import partial

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.controller.pending import list_pending
from slate_async.collections.core.coverage import extend
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.garbage import PendingEnds, beyond, find_lost
from slate_async.collections.core.names import COMPARE_SHARD, PendingName
from slate_async.collections.store.merged import list_merged, lost_version, read_uppers

LOOKS = 10

logger = logging.getLogger(__name__)


async def check_not_lost(context: ControllerContext) -> None:
    """Raise `CorruptionError` if a merged batch ends where neither the head nor what is pending does."""
    for _ in range(LOOKS):
        files = await context.answered("a listing of merged files", partial(list_merged, context.store, context.schema))
        head = await context.answered("a read of the head", context.versions.load)
        files = beyond(files, head)
        if not files:
            return
        read = partial(read_uppers, context.store, context.schema, files)
        files = await context.answered("a look at merged files", read)
        ends = await _ends(context, head.upper)
        lost = find_lost(files, head, ends)
        if lost is None:
            return
        if (await context.answered("a read of the head", context.versions.load)).version == head.version:
            logger.error("%s: %s: a later version than %d was lost", context.name, lost.batch, head.version)
            raise lost_version(context.name, lost, head, ends)


async def _ends(context: ControllerContext, at: Frontier) -> PendingEnds:
    """Of what is pending beyond ``at``."""
    if context.appends is Appends.DEFINITE:
        batches = await context.answered("a listing of pending batches", lambda: list_pending(context, at))
        return PendingEnds(extend(at, batches).coverage)
    links: set[Frontier] = set()
    while True:
        name = PendingName(COMPARE_SHARD, at, None)
        link = await context.answered(f"a look at {name}", partial(context.pending.describe, name))
        if link is None or not at < link.upper:
            return PendingEnds(at, frozenset(links))
        at = link.upper
        links.add(at)
