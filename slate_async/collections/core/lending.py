"""Holds that one process keeps and under which others read: which stored hold is the one that was lent.

Who reads knows no etag, because the keeper renews the hold meanwhile. It knows a *beat*: of a write that followed the
registration, so its condition was an etag and not that there be none. Attempts to register all have lower beats, and
only they can make a hold of that name again once it was revoked and removed. So a hold with that beat or a higher one
descends from the one that was lent, without a gap (C10).

Rules C10, C13 and C15 of collections.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slate_async.collections.core.area import Area
from slate_async.collections.core.holding import Handle, Hold, StoredHold, Verdict


@dataclass(frozen=True, slots=True)
class LentHold:
    """What is known of a hold where one reads under it.

    reader: its name
    beat: of a write after it was registered
    version: the one that is read; the hold goes past it when the keeper knows that nobody reads it any more (C13)
    """

    reader: str
    beat: int
    version: int


def stands_lent(lent: LentHold, stored: StoredHold | None) -> bool:
    """C10: whether ``stored`` descends from the hold that was ``lent``, and still covers its version."""
    if stored is None or stored.hold.version is None or not _descends(lent, stored.hold):
        return False
    return stored.hold.version <= lent.version


def adopted(lent: LentHold, stored: StoredHold | None, lease_ms: int, note: str) -> Handle | None:
    """The handle of a process that takes over to keep a hold which descends from the one that was ``lent``, whatever
    its version; ``None`` if it does not. The next write evicts the keeper before."""
    if stored is None or stored.hold.version is None or not _descends(lent, stored.hold):
        return None
    hold = stored.hold
    return Handle(
        lent.reader, hold.version, hold.since, lease_ms, note, stored.etag, beat=hold.beat, unknown=hold.unknown
    )


def prolonged(hold: Hold, nonce: str) -> Hold:
    """``hold`` written once more by one that reads under it, so that its lease begins anew: it moves nowhere."""
    return replace(hold, nonce=nonce, beat=hold.beat + 1)


def judge_missing_lent(lent: LentHold, stored: StoredHold | None, head: Area) -> Verdict:
    """C15: why an object is missing that the version named; ``stored`` and ``head`` were read afterwards."""
    if head.deleted:
        return Verdict.DELETED
    return Verdict.CORRUPTED if stands_lent(lent, stored) else Verdict.LOST


def _descends(lent: LentHold, hold: Hold) -> bool:
    return not hold.revoked and hold.beat >= lent.beat
