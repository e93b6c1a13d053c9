"""How the manifest refers to a finished SST."""

from __future__ import annotations

from slate_async.storage.format.sst import EncodedSst
from slate_async.storage.format.stats import SstStats
from slate_async.storage.manifest.state import SstRef


def sst_ref(location: str, object_id: bytes, encoded: EncodedSst, writer_epoch: int) -> SstRef:
    """The manifest's reference to ``encoded``, stored at ``location``."""
    return stored_sst_ref(location, object_id, encoded.size, encoded.stats, writer_epoch)


def stored_sst_ref(location: str, object_id: bytes, size: int, stats: SstStats, writer_epoch: int) -> SstRef:
    """The manifest's reference to an object of ``size`` bytes that says of itself ``stats``."""
    return SstRef(
        location=location,
        object_id=object_id,
        size=size,
        rows=stats.rows,
        tombstones=stats.tombstones,
        first_key=stats.first_key,
        last_key=stats.last_key,
        min_seq=stats.min_seq,
        max_seq=stats.max_seq,
        min_expire_ms=stats.min_expire_ms,
        max_expire_ms=stats.max_expire_ms,
        writer_epoch=writer_epoch,
    )
