"""Errors of tables, besides those of `slate_async.errors`."""

from __future__ import annotations

from slate_async.errors import ConflictError


class SnapshotExpiredError(ConflictError):
    """The version that is read is not kept any more, and a part of it was deleted: read a newer one."""
