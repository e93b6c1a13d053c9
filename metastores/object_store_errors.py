"""Turns what an object store raises into metastore errors, at the edge.

Object stores are known by shape only, so their errors are, too (`metastores.protocol.ConditionalObjects` has the
contract): a failure is an exception with an attribute ``outcome``, or an `OSError` (timeouts and lost connections are
ones). Of those, ``outcome == "not_applied"`` says that a write certainly never ran, an ``object_name`` that stored
bytes are wrong, a `ValueError` that the call was wrong. The rest is "did not answer" for a read and "may have run"
for a write.

Rules: a failed conditional write leaves this module as `OutcomeUnknownError` unless it is certainly not in. What is
no failure - a `TypeError`, say - is a bug, here or in the store, and passes through as it is: retried as an outage it
would never be found.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from metastores.errors import (
    MetaStoreCorruptionError,
    MetaStoreError,
    MetaStoreInvalidError,
    MetaStoreUnavailableError,
)


class OutcomeUnknownError(Exception):
    """A conditional write may have run or may run later. Never leaves this package: it becomes `Unknown`."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise the failure of a read, listing, delete or unconditional put of ``what`` as `MetaStoreError`."""
    try:
        yield
    except MetaStoreError:
        raise
    except Exception as error:
        if not _is_failure(error):
            raise
        raise _read_failure(error, what) from error


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Raise the failure of a conditional write of ``what`` as `MetaStoreError` (certainly not in) or
    `OutcomeUnknownError`."""
    try:
        yield
    except (MetaStoreError, OutcomeUnknownError):
        raise
    except Exception as error:
        if not _is_failure(error):
            raise
        if getattr(error, "outcome", None) == "not_applied":
            raise _read_failure(error, what) from error
        raise OutcomeUnknownError(f"{what}: {_words(error)}") from error


def _is_failure(error: Exception) -> bool:
    return isinstance(error, OSError) or hasattr(error, "outcome")


def _read_failure(error: Exception, what: str) -> MetaStoreError:
    name = getattr(error, "object_name", None)
    if isinstance(name, str):
        return MetaStoreCorruptionError(str(error).removeprefix(f"{name} "), object_name=name)
    if isinstance(error, ValueError):
        return MetaStoreInvalidError(f"{what}: {error}")
    return MetaStoreUnavailableError(f"{what}: {_words(error)}")


def _words(error: Exception) -> str:
    """What the error says; timeouts and lost connections often say nothing."""
    if said := str(error):
        return said
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return "the connection was lost" if isinstance(error, ConnectionError) else "no answer"
