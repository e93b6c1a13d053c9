"""`Ending`: what becomes of a leased job whose commit fails: nobody else knows its name, so nobody else would end it.

Ordering rule: the abort is committed, or its outcome unknown -> the error leaves the call. So rows of a call that
failed come in never, or the error says that it is unknown, and how to end it; the lease ends it in any case.

Rule 31: docs/design/protocol-rules.md
"""

from __future__ import annotations

import logging

from slate_async.engine.ingest import manage
from slate_async.engine.ingest.manage import IngestInfo, IngestPendingError
from slate_async.errors import SlateError, UnavailableError
from slate_async.runtime.protocol import Clock
from slate_async.storage.manifest.driver import ManifestDriver

logger = logging.getLogger(__name__)


class Ending:
    """Of the job ``job_id``, in the database called ``name``."""

    def __init__(self, name: str, driver: ManifestDriver, clock: Clock, job_id: str) -> None:
        self._name = name
        self._driver = driver
        self._clock = clock
        self._job_id = job_id
        self._info: IngestInfo | None = None
        self._unknown: SlateError | None = None

    async def run(self) -> None:
        """Abort the job, if it is not applied."""
        try:
            self._info = await manage.abort(self._driver, self._clock, self._job_id)
            logger.info("%s: ingest %s is %s", self._name, self._job_id, self._info.state)
        except SlateError as error:
            self._unknown = error
            logger.warning("%s: whether ingest %s was aborted is unknown: %s", self._name, self._job_id, error)

    def check(self, error: Exception) -> IngestInfo:
        """Raise ``error``, as what it is now: nothing was applied, or that is unknown. Returns if the job is in."""
        if self._info is None:
            raise IngestPendingError(
                f"{error}. Whether ingest {self._job_id!r} was aborted then is unknown ({self._unknown}). A writer may"
                " apply it until its lease ends, unless it was committed without waiting. To end it: slate --path"
                f" {self._name} abort-ingest {self._job_id}",
                IngestInfo(self._job_id, "pending", self._clock.now_ms()),
            ) from error
        if self._info.done:
            return self._info
        if isinstance(error, IngestPendingError):
            raise UnavailableError(
                f"no writer has applied ingest {self._job_id!r} in time, so it was aborted, and none of its rows is"
                " there. Wait for longer, or write again in mode 'exclusive', which fences a writer that lives",
                outcome="not_applied",
            ) from error
        if isinstance(error, UnavailableError):
            raise UnavailableError(
                f"{error}; ingest {self._job_id!r} was aborted, and none of its rows is there", outcome="not_applied"
            ) from error
        raise error
