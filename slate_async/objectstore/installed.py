"""Object stores that other packages bring, as entry points of the group ``slate_async.stores``.

An entry point is named for a URL scheme and names a `slate_async.objectstore.url.StoreFactory`. In ``pyproject.toml``::

    [project.entry-points."slate_async.stores"]
    dfs = "some_package.store:open_store"

The schemes that are built in cannot be replaced. What is installed is looked up once per process.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from slate_async.errors import ConfigError

GROUP = "slate_async.stores"
_NAME = re.compile(r"[a-z][a-z0-9+.-]{0,15}\Z")


@cache
def _found() -> Mapping[str, Sequence[EntryPoint]]:
    found: defaultdict[str, list[EntryPoint]] = defaultdict(list)
    for point in entry_points(group=GROUP):
        if _NAME.match(point.name) and point not in found[point.name]:
            found[point.name].append(point)
    return dict(found)


def installed_schemes() -> list[str]:
    """The schemes that installed packages bring, in order."""
    return sorted(_found())


def load_factory(scheme: str) -> Any:
    """What the entry point of ``scheme`` names. Imports the package that brings it.

    Raises `ConfigError` if no package brings that scheme, or several do, or it cannot be imported."""
    points = _found().get(scheme)
    if points is None:
        raise ConfigError(f"no installed package brings {scheme}:// stores")
    point, *others = points
    if others:
        packages = sorted({_package(entry) for entry in (point, *others)})
        raise ConfigError(f"{scheme}:// is brought by {' and by '.join(packages)}; uninstall all but one")
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{scheme}:// is brought by {_package(point)}, which cannot be imported: {error}") from error


def _package(point: EntryPoint) -> str:
    return point.value if point.dist is None else point.dist.name
