"""`Flights`: merged files that were put, or are to be, and of whose commits the outcome is not known.

A file is in flight from before its put until its commit's outcome is known; the own collection of garbage spares it
(C22). A commit without an answer was sent as the version after some head; so its outcome is known once a head above
that one was read: it is named there, or it was before, or it never will be.

A file of which no commit was sent and none will be is in flight no more: nothing can name it, however late it lands.

Rule C22 of collections.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slate_async.collections.core.area import Area
from slate_async.collections.core.edits import Absorb, Finalize, Publish, ReplaceMerged
from slate_async.collections.store.versions import AreaVersions
from slate_async.errors import ClosedError, ConflictError, FencedError


class Flights:
    """See the module docstring."""

    def __init__(self) -> None:
        self._writing: set[str] = set()
        self._doubtful: dict[str, int] = {}

    @property
    def names(self) -> frozenset[str]:
        """Of all batches in flight."""
        return frozenset(self._writing) | frozenset(self._doubtful)

    @contextmanager
    def of(self, *names: str) -> Iterator[None]:
        """Within the body ``names`` are put, and at its end committed by `commit`, or given up."""
        self._writing.update(names)
        try:
            yield
        finally:
            self._writing.difference_update(names)

    async def commit(
        self, versions: AreaVersions, edit: Absorb | Publish | ReplaceMerged | Finalize, name: str | None = None
    ) -> Area:
        """Commit ``edit``, by which the file of the batch called ``name`` is named. Raises what the commit raises."""
        try:
            return await versions.commits.commit(edit)
        except (ConflictError, FencedError):
            raise  # judged on a head that was read: nothing that was sent before can take effect any more
        except BaseException as error:
            if name is not None and not (isinstance(error, ClosedError) and error.outcome == "not_applied"):
                self.doubt(name, 0 if versions.head is None else versions.head.version)
            raise

    def doubt(self, name: str, version: int) -> None:
        """A commit that names ``name`` was sent after the head ``version`` at the latest, and not answered."""
        self._doubtful[name] = version

    def saw(self, head: Area) -> None:
        """``head`` was read, before files are listed."""
        self._doubtful = {name: version for name, version in self._doubtful.items() if is_open(version, head)}


def is_open(version: int, head: Area) -> bool:
    """C22: whether a commit that was sent after ``version``, and not answered, may still take effect after ``head``."""
    return head.version <= version
