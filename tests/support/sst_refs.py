"""References to SSTs that are nowhere, for tests of manifests."""

from __future__ import annotations

from slate_async.storage.manifest.state import SstRef


def sst(number: int) -> SstRef:
    """All its facts follow from ``number``."""
    return SstRef(
        location=f"sst/{number}",
        object_id=number.to_bytes(16, "big"),
        size=100 + number,
        rows=number,
        tombstones=1,
        first_key=b"\x00",
        last_key=b"\xff" * 3,
        min_seq=number * 10,
        max_seq=number * 10 + 9,
        writer_epoch=1,
    )
