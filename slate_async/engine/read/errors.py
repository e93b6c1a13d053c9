"""What an error of a read tells: never the outcome of a write, whatever failed on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slate_async.errors import SlateError


@contextmanager
def about_a_read() -> Iterator[None]:
    """Errors of the body are told without ``outcome``: a read may adopt a manifest or renew a checkpoint on its way."""
    try:
        yield
    except SlateError as error:
        error.outcome = None
        raise
