"""Where settings come from besides keywords: environment variables and TOML files; and how a bad one is reported."""

from __future__ import annotations

import functools
import logging
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from slate_async.errors import ConfigError

logger = logging.getLogger(__name__)

ENV_PREFIX = "SLATE_"
COLLECTIONS_PREFIX = "SLATE_COLLECTIONS_"
COLLECTIONS_TABLE = "collections"
"""The table of the settings of collections, inside that of all settings."""
SERVE_PREFIX = "SLATE_SERVE_"
SERVE_TABLE = "serve"
"""The same of the settings of servers."""
OTHER_VARIABLES = frozenset({"SLATE_PATH", "SLATE_METASTORE", "SLATE_SETTINGS", "SLATE_SLICE_SEED"})
"""Variables with our prefix that the ``slate`` command and the project's test run read; they are not settings."""

MOST_EDITS = 3
LETTERS_AN_EDIT = 4
UNITS = ("_MS", "_BYTES")
"""What is most easily left out of a name."""

_SERVICE_LINK = re.compile(
    r"SLATE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""Variables Kubernetes sets in every container for a service whose name starts with "slate"; not ours."""


def check_variables(environment: Mapping[str, str], fields: Iterable[str], prefix: str = ENV_PREFIX) -> None:
    """Look at the variables with ``prefix`` that name no setting. A near miss of a name would silently leave a default
    in place: it raises `ConfigError`. Any other is an application's own, and logged as a warning, once a process."""
    known = {prefix + name.upper() for name in fields} | OTHER_VARIABLES
    for name in sorted(environment):
        upper = name.upper()
        if not upper.startswith(prefix) or upper in known or _SERVICE_LINK.fullmatch(upper):
            continue
        if prefix == ENV_PREFIX and upper.startswith((COLLECTIONS_PREFIX, SERVE_PREFIX)):
            continue  # looked at with the settings of collections, or of servers
        meant = _near_miss(upper, known, prefix)
        if meant is not None:
            raise ConfigError(f"environment variable {name} names no setting of slate_async; is {meant} meant?")
        _warn_of(name)


@functools.cache
def _warn_of(name: str) -> None:
    logger.warning("environment variable %s names no setting of slate_async; it is ignored", name)


def _near_miss(name: str, known: Iterable[str], prefix: str) -> str | None:
    """The known name that ``name`` is probably meant to be: itself with a unit, or the nearest within one edit per
    `LETTERS_AN_EDIT` letters behind ``prefix``, at least one and at most `MOST_EDITS`."""
    known = set(known)
    if with_unit := known.intersection(name + unit for unit in (*UNITS, *map(str.lower, UNITS))):
        return min(with_unit)
    letters = len(name.removeprefix(prefix))
    allowed = max(1, min(MOST_EDITS, letters // LETTERS_AN_EDIT))
    distances = {candidate: _edits(name, candidate, allowed) for candidate in known}
    nearest = min(sorted(distances), key=distances.__getitem__, default=None)
    return nearest if nearest is not None and distances[nearest] <= allowed else None


def _edits(one: str, other: str, limit: int) -> int:
    """How many letters must be put in, left out, exchanged or swapped with a neighbour to make ``other`` of ``one``
    (optimal string alignment distance); above ``limit`` some number above it."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    before: list[int] = []
    above = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        here = [row]
        for column, another in enumerate(other, start=1):
            edits = min(above[column] + 1, here[-1] + 1, above[column - 1] + (letter != another))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == another:
                edits = min(edits, before[column - 2] + 1)
            here.append(edits)
        if min(here) > limit:
            return limit + 1
        before, above = above, here
    return above[-1]


def read_toml(path: str | os.PathLike[str], fields: Mapping[str, object], table: Sequence[str]) -> dict[str, Any]:
    """What the file says in ``table``; at its top level if it has no table ``table[0]``."""
    where = f"settings file {os.fspath(path)!r}"
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} is not TOML: {error}") from error
    if table[0] not in document:
        other = next((name for name, value in document.items() if isinstance(value, dict)), None)
        if other is not None:
            raise ConfigError(f"{where}: settings stand in table [{'.'.join(table)}], not in [{other}]")
        return document
    found = document
    for depth, name in enumerate(table, start=1):
        found = found.get(name, {})
        if not isinstance(found, dict):
            raise ConfigError(f"{where}: {'.'.join(table[:depth])!r} must be a table")
    stray = sorted(set(document) & set(fields))
    if stray:
        raise ConfigError(f"{where}: {stray[0]} stands outside its [{'.'.join(table)}] table")
    others = {name for name in (COLLECTIONS_TABLE, SERVE_TABLE) if isinstance(found.get(name), dict)}
    return {name: value for name, value in found.items() if name not in others}


def explain(
    error: ValidationError, given: Mapping[str, object], fields: Iterable[str], prefix: str = ENV_PREFIX
) -> str:
    """One line per bad setting, each starting with its name, or that of its variable if it is not ``given``."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        if problem["type"] == "default_factory_not_called":  # follows from another problem in the list
            continue
        names = [str(part) for part in problem["loc"] if isinstance(part, str)]
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            meant = _near_miss(names[0], fields, prefix)
            message = f"there is no such setting; is {meant} meant?" if meant else "there is no such setting"
        elif names:
            message = f"{message}{_unit(names[0])} (got {problem['input']!r})"
        lines.append(f"{_named(names[0], given, prefix)}: {message}" if names else message)
    return "bad settings: " + "; ".join(dict.fromkeys(lines))


def _named(name: str, given: Mapping[str, object], prefix: str) -> str:
    """A setting as its source calls it."""
    variable = prefix + name.upper()
    found = next((known for known in os.environ if known.upper() == variable and os.environ[known]), None)
    return name if found is None or name in given else f"{name} (of environment variable {found})"


def _unit(name: str) -> str:
    """What a number of that setting counts."""
    if name.endswith("_bytes"):
        return ", in bytes"
    return ", in milliseconds" if name.endswith("_ms") else ""
