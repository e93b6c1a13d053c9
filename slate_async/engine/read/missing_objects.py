"""When a read that found an object missing may be done again: how often, and in which views.

`engine.read.source` and `engine.read.retrying_rows` do it again, in another view that the read's owner gives. The owner
reads the manifest's head, once for each such read. If another writer took over, that is the answer (`FencedError`). If
the state moved on without the object (compacted, then collected), the read goes on in the view of that state. Only if
the head still names the object it is lost (`CorruptionError`).

A point read may use the newer view as it is. A scan or a snapshot, whose read point is fixed, may use it only if it
shows that read point exactly (`check_same_point`): compaction keeps just the newest version of a key.
"""

from __future__ import annotations

from slate_async.engine.read.view import ReadView
from slate_async.errors import ConflictError, UnavailableError
from slate_async.storage.sst.reader import MissingError

RETRIES = 3
"""How often one read is done again."""


def check_same_point(old: ReadView, max_seq: int, covered_seq: int, missing: MissingError) -> None:
    """Raise `ConflictError` unless a newer view, whose SSTs hold numbers up to ``covered_seq``, shows up to ``max_seq``
    what ``old`` does: nothing newer may have hidden a row of it, nor may a row have expired since."""
    if covered_seq > max_seq or old.may_expire:
        raise ConflictError(
            f"{missing.object_name} was compacted and removed under this read, and its replacement shows only a later"
            " read point; scan again, or take another snapshot"
        ) from missing


def retries_exhausted(missing: MissingError | None) -> UnavailableError:
    """The error of a read whose objects went away each time it was done again."""
    return UnavailableError(f"objects were compacted and removed under each of {RETRIES} reads, last: {missing}")
