"""Turns what an object store raises into metastore errors, at the edge.

Object stores are known by shape only, so their errors are, too: ``outcome == "not_applied"`` says that a write
certainly never ran, an ``object_name`` that stored bytes are wrong, a `ValueError` that the call was wrong.
Everything else is "did not answer" for a read and "may have run" for a write.

Rule: an error of a conditional write leaves this module as `OutcomeUnknownError` unless it is certainly not in.
"""

from __future__ import annotations

from metastores.errors import (
    MetaStoreCorruptionError,
    MetaStoreError,
    MetaStoreInvalidError,
    MetaStoreUnavailableError,
)


class OutcomeUnknownError(Exception):
    """A conditional write may have run or may run later. Never leaves this package: it becomes `Unknown`."""


def read_failure(error: Exception, what: str) -> MetaStoreError:
    """The error to raise for a failed read, listing, delete or unconditional put of ``what``."""
    if isinstance(error, MetaStoreError):
        return error
    name = getattr(error, "object_name", None)
    if isinstance(name, str):
        return MetaStoreCorruptionError(str(error), object_name=name)
    if isinstance(error, ValueError):
        return MetaStoreInvalidError(f"{what}: {error}")
    return MetaStoreUnavailableError(f"{what}: {type(error).__name__}: {error}")


def write_failure(error: Exception, what: str) -> MetaStoreError | OutcomeUnknownError:
    """The error to raise for a failed conditional write of ``what``."""
    if isinstance(error, MetaStoreError | OutcomeUnknownError):
        return error
    if getattr(error, "outcome", None) == "not_applied":
        return read_failure(error, what)
    return OutcomeUnknownError(f"{what}: {type(error).__name__}: {error}")
