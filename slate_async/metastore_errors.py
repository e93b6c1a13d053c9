"""Errors of metastores as the kinds of `slate_async.errors`."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Iterator
from typing import TypeVar

from metastores.errors import (
    MetaStoreCorruptionError,
    MetaStoreError,
    MetaStoreInvalidError,
    MetaStoreNotFoundError,
    MetaStoreUnavailableError,
)
from slate_async.errors import ConfigError, CorruptionError, NotFoundError, UnavailableError, said_by

T = TypeVar("T")


@contextlib.contextmanager
def translating() -> Iterator[None]:
    """Raise errors of metastores as errors of `slate_async.errors`."""
    try:
        yield
    except MetaStoreNotFoundError as error:
        raise NotFoundError(str(error)) from error
    except MetaStoreInvalidError as error:
        raise ConfigError(str(error)) from error
    except MetaStoreCorruptionError as error:
        found = error.__cause__
        if isinstance(found, CorruptionError):  # the object store's, which knows where in the object
            raise CorruptionError(said_by(found), object_name=found.object_name, offset=found.offset) from error
        said = str(error).removeprefix(f"{error.object_name}: ")  # which the error says itself
        raise CorruptionError(said, object_name=error.object_name) from error
    except MetaStoreUnavailableError as error:
        raise UnavailableError(str(error)) from error
    except MetaStoreError as error:
        raise UnavailableError(f"the metastore failed: {error}") from error


async def translated(work: Awaitable[T]) -> T:
    """Await a metastore call under `translating`."""
    with translating():
        return await work
