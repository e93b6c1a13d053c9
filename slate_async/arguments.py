"""Arguments of public calls, checked and copied at the call. Nothing that the caller does later can change them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID

from slate_async.errors import InvalidError, Outcome
from slate_async.settings import Settings
from slate_async.types import FORMAT_LIMITS, RowLimits

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""Keys, values and bounds. They are copied if they may change."""
Duration: TypeAlias = float | timedelta
"""Seconds, or a `timedelta`."""
MAX_TTL_MS = 2**62


def key_bytes(key: BytesLike, limits: RowLimits = FORMAT_LIMITS, outcome: Outcome | None = "not_applied") -> bytes:
    """``key`` as bytes of our own. Raises `InvalidError`, with ``outcome``, unless it is bytes-like, not empty, and
    within ``limits``."""
    if type(key) is not bytes:
        key = _copied(key, "key", outcome)
    if not 0 < len(key) <= limits.max_key_bytes:
        raise InvalidError(f"a key has {limits.describe_key()}, not {len(key)}", outcome=outcome)
    return key


def sought_key(key: BytesLike) -> bytes:
    """As `key_bytes`, of a read, whose error has no outcome."""
    return key_bytes(key, outcome=None)


def prefix_bytes(prefix: BytesLike | None) -> bytes:
    """What keys begin with, as bytes of our own; none is all keys. Raises `InvalidError` unless it is bytes-like."""
    return b"" if prefix is None else _copied(prefix, "prefix", None)


def value_bytes(value: BytesLike, limits: RowLimits = FORMAT_LIMITS) -> bytes:
    """``value`` as bytes of our own. Raises `InvalidError` unless it is bytes-like and within ``limits``."""
    if type(value) is not bytes:
        value = _copied(value, "value", "not_applied")
    if len(value) > limits.max_value_bytes:
        raise InvalidError(f"a value has {limits.describe_value()}, not {len(value)}", outcome="not_applied")
    return value


def _copied(data: BytesLike, what: str, outcome: Outcome | None) -> bytes:
    try:
        view = memoryview(data)
    except TypeError:
        kind = type(data).__name__
        raise InvalidError(f"a {what} is bytes-like, not {kind}", outcome=outcome) from None
    try:
        return view.tobytes()
    finally:
        view.release()


def seconds(duration: Duration, what: str) -> float:
    """A duration argument in seconds. Raises `InvalidError` unless it is a positive, finite number."""
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        raise InvalidError(f"{what} is seconds or a timedelta, not {type(duration).__name__}", outcome="not_applied")
    if not 0 < duration < MAX_TTL_MS / 1000:
        raise InvalidError(f"{what} is a positive number of seconds, not {duration}", outcome="not_applied")
    return float(duration)


def ttl_ms(ttl: Duration) -> int:
    """A time to live in whole milliseconds, at least one."""
    return max(1, round(seconds(ttl, "ttl") * 1000))


def life_ms(ttl: Duration) -> int | None:
    """How long a row lives, in milliseconds, whose ``ttl`` was given: ``None`` for ever, which is ``math.inf``."""
    return None if ttl == math.inf else ttl_ms(ttl)


def check_arguments(
    path: object, metastore: object, settings: object, create: object, properties: object, name: object
) -> None:
    """Raise `InvalidError` for an argument of `Environment.open` of the wrong kind."""
    check_place(path, metastore, name)
    check_kinds(
        ("settings", settings is None or isinstance(settings, Settings), settings, "Settings or None"),
        ("create", isinstance(create, bool), create, "True or False"),
        ("properties", properties is None or _is_text_map(properties), properties, "a map of str to str or None"),
    )


def check_place(path: object, metastore: object, name: object) -> None:
    """Raise `InvalidError` unless they can say where something lies."""
    check_kinds(
        ("path", isinstance(path, str | os.PathLike) or hasattr(path, "put"), path, "a URL, a path or a store"),
        (
            "metastore",
            metastore is None or isinstance(metastore, str) or hasattr(metastore, "manifest"),
            metastore,
            "a name, a factory or None",
        ),
        ("name", name is None or isinstance(name, str), name, "a str or None"),
    )


def check_kinds(*kinds: tuple[str, bool, object, str]) -> None:
    """Raise `InvalidError` for the first argument that is not good. Each has its name, whether it is good, its value,
    and what is expected of it."""
    for argument, good, value, expected in kinds:
        if not good:
            raise InvalidError(f"{argument} is {expected}, not {type(value).__name__}")


def check_reader_arguments(checkpoint: object, pin: object) -> None:
    """Raise `InvalidError` for an argument of `Environment.open_reader` of the wrong kind."""
    if checkpoint is not None and not isinstance(checkpoint, str | UUID):
        raise InvalidError(f"checkpoint is an id, a name or None, not {type(checkpoint).__name__}")
    if not isinstance(pin, bool):
        raise InvalidError(f"pin is True or False, not {type(pin).__name__}")


def check_standby(standby: object) -> None:
    """Raise `InvalidError` unless it is a bool."""
    if not isinstance(standby, bool):
        raise InvalidError(f"standby is True or False, not {type(standby).__name__}")


def own_path(path: object, of: str) -> str:
    """``path`` as text. Raises `InvalidError` unless it is a URL or a path. ``of``: what is to be there."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise InvalidError(f"path is the URL of the {of}, not {path!r}")
    return text


def check_clone_arguments(checkpoint: object, properties: object) -> None:
    """Raise `InvalidError` for an argument of `Admin.clone` of the wrong kind."""
    if checkpoint is not None and not isinstance(checkpoint, str | UUID):
        raise InvalidError(f"checkpoint is an id, a name or None, not {type(checkpoint).__name__}")
    if properties is not None and not _is_text_map(properties):
        raise InvalidError(f"properties is a map of str to str or None, not {type(properties).__name__}")


def _is_text_map(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(part, str) for item in value.items() for part in item)
