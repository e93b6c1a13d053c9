"""Checking the kinds of arguments before anything is done with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from uuid import UUID

from slate_async.errors import InvalidError
from slate_async.settings import Settings


def check_arguments(
    path: object, metastore: object, settings: object, create: object, properties: object, name: object
) -> None:
    """Raise `InvalidError` for an argument of `Environment.open` of the wrong kind."""
    kinds: tuple[tuple[str, bool, object, str], ...] = (
        ("path", isinstance(path, str | os.PathLike) or hasattr(path, "get_ranges"), path, "a URL, a path or a store"),
        (
            "metastore",
            metastore is None or isinstance(metastore, str) or hasattr(metastore, "manifest"),
            metastore,
            "a name, a factory or None",
        ),
        ("settings", settings is None or isinstance(settings, Settings), settings, "Settings or None"),
        ("create", isinstance(create, bool), create, "True or False"),
        ("properties", properties is None or _is_text_map(properties), properties, "a map of str to str or None"),
        ("name", name is None or isinstance(name, str), name, "a str or None"),
    )
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
