"""What an error of a read tells: never the outcome of a write, whatever failed on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slate_async.errors import SlateError


@contextmanager
def about_a_read() -> Iterator[None]:
    """Remove ``outcome`` from errors of the body: it would speak of a manifest or checkpoint commit that the read made
    on its way, not of a write of the caller."""
    try:
        yield
    except SlateError as error:
        error.outcome = None
        raise
