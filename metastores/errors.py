"""Errors of metastores, classed by what the caller does next. The engine translates them."""

from __future__ import annotations


class MetaStoreError(Exception):
    """Base of the errors below."""


class MetaStoreUnavailableError(MetaStoreError):
    """The backend did not answer within its retries and deadline; try again later."""


class MetaStoreInvalidError(MetaStoreError):
    """Wrongly set up (missing table, wrong region, bad name); mend the configuration."""


class MetaStoreNotFoundError(MetaStoreInvalidError):
    """The table, or whatever else holds the metadata, does not exist; create it."""


class MetaStoreCorruptionError(MetaStoreError):
    """Stored metadata fails its checksum or names another object. ``object_name`` says which."""

    object_name: str
    """The object, item or register that is corrupt."""

    def __init__(self, message: str, *, object_name: str) -> None:
        super().__init__(f"{object_name}: {message}")
        self.object_name = object_name
