"""Every object in the folder of one life of a collection, by what its name says it is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from metastores.names import MERGED_AREAS
from slate_async.collections.core import names
from slate_async.collections.core.garbage import MergedFile
from slate_async.collections.core.names import MergedName
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.store.pending import Listed
from slate_async.objectstore.protocol import ObjectInfo


@dataclass(slots=True)
class Listing:
    """What is there.

    merged: parts, too, each with the name of its batch
    holds: when each reader's was written, in milliseconds by the store's clock
    foreign: key and size of what has no name that a collection gives
    """

    merged: list[tuple[str, MergedName, int]] = field(default_factory=list)
    pending: list[Listed] = field(default_factory=list)
    holds: dict[str, int] = field(default_factory=dict)
    foreign: list[tuple[str, int]] = field(default_factory=list)

    def files(self) -> list[MergedFile]:
        """The merged ones, as garbage is judged by."""
        return [MergedFile(key, str(name), name.epoch, name.upper, size) for key, name, size in self.merged]


async def list_all(context: ReaderContext) -> Listing:
    """List the folder. Raises `UnavailableError`."""
    listing = Listing()
    infos = await context.answered("a listing of all objects", lambda: _infos(context))
    kind = context.schema.kind
    for info in infos:
        if merged := names.parse_merged(info.key, kind):
            listing.merged.append((info.key, replace(merged, part=None), info.size))
        elif pending := names.parse_pending(info.key, kind):
            listing.pending.append(Listed(info.key, pending, info.size))
        elif reader := names.parse_hold(info.key):
            listing.holds[reader] = info.last_modified_ms
        elif not MERGED_AREAS.gives(info.key):
            listing.foreign.append((info.key, info.size))
    return listing


async def _infos(context: ReaderContext) -> list[ObjectInfo]:
    return [info async for info in context.store.list()]
