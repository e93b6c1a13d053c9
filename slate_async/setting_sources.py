"""Where settings come from besides keywords: environment variables and TOML files; and how a bad one is reported."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from slate_async.errors import InvalidError

ENV_PREFIX = "SLATE_"
OTHER_VARIABLES = frozenset({"SLATE_PATH", "SLATE_METASTORE", "SLATE_SETTINGS", "SLATE_SLICE_SEED"})
"""Variables with our prefix that the ``slate`` command and the project's test run read; they are not settings."""

_SERVICE_LINK = re.compile(
    r"SLATE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""Variables Kubernetes sets in every container for a service whose name starts with "slate"; not ours."""


def refuse_unknown_variables(environment: Mapping[str, str], fields: Iterable[str]) -> None:
    """A misspelt variable would silently leave a default in place, so an unknown one with our prefix is refused."""
    known = {ENV_PREFIX + name.upper() for name in fields} | OTHER_VARIABLES
    for name in sorted(environment):
        upper = name.upper()
        if upper.startswith(ENV_PREFIX) and upper not in known and not _SERVICE_LINK.fullmatch(upper):
            raise InvalidError(f"environment variable {name} names no setting of slate_async; unset or rename it")


def read_toml(path: str | os.PathLike[str], fields: Mapping[str, object]) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise InvalidError(f"settings file {os.fspath(path)!r} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"settings file {os.fspath(path)!r} is not TOML: {error}") from error
    if "slate" not in document:
        return document
    table = document["slate"]
    if not isinstance(table, dict):
        raise InvalidError(f"settings file {os.fspath(path)!r}: 'slate' must be a table")
    stray = sorted(set(document) & set(fields))
    if stray:
        raise InvalidError(f"settings file {os.fspath(path)!r}: {stray[0]} stands outside its [slate] table")
    return table


def explain(error: ValidationError) -> str:
    """One line per bad setting, each starting with its name."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        if problem["type"] == "default_factory_not_called":  # follows from another problem in the list
            continue
        names = [str(part) for part in problem["loc"] if isinstance(part, str)]
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = "there is no such setting"
        elif names:
            message = f"{message} (got {problem['input']!r})"
        lines.append(f"{names[0]}: {message}" if names else message)
    return "bad settings: " + "; ".join(dict.fromkeys(lines))
