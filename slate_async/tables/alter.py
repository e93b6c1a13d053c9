"""Changes of a table's schema and properties, each one version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from slate_async.errors import InvalidError
from slate_async.tables.context import TableContext
from slate_async.tables.core.edits import Alter, SetProperties
from slate_async.tables.core.group import TableEdit


async def alter(
    context: TableContext,
    *,
    add: Mapping[str, pa.DataType | pa.Field] | None,
    defaults: Mapping[str, Any] | None,
    drop: Iterable[str],
    rename: Mapping[str, str] | None,
    reorder: Sequence[str] | None,
    widen: Mapping[str, pa.DataType] | None,
    nullable: Iterable[str],
) -> int:
    """See `Table.alter`; returns the version that it made."""
    maps = {"add": add, "defaults": defaults, "rename": rename, "widen": widen}
    lists = {"drop": drop, "nullable": nullable, "reorder": reorder}
    for name, given in maps.items():
        if given is not None and not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
            raise InvalidError(f"{name}= is a map by names of columns, not {given!r}", outcome="not_applied")
    if rename is not None and not all(isinstance(new, str) for new in rename.values()):
        raise InvalidError(f"rename= has the new name by the old one, not {rename!r}", outcome="not_applied")
    named: dict[str, list[str]] = {}
    for name, names in lists.items():
        if isinstance(names, str) or (names is not None and not all(isinstance(column, str) for column in names)):
            raise InvalidError(f"{name}= is a list of names of columns, not {names!r}", outcome="not_applied")
        named[name] = list(names or ())
    changes = {
        **{name: dict(given) for name, given in maps.items() if given},
        "drop": named["drop"],
        "optional": named["nullable"],
        "order": named["reorder"] or None,
    }
    if not any(changes.values()):
        raise InvalidError("nothing is to be changed; say what", outcome="not_applied")
    return await _committed(context, Alter(changes))


async def set_properties(context: TableContext, properties: Mapping[str, str] | None, unset: Iterable[str]) -> int:
    """See `Table.set_properties`; returns the version that it made."""
    given = {} if properties is None else properties
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise InvalidError(f"properties are a map of strings, not {properties!r}", outcome="not_applied")
    if isinstance(unset, str) or not all(isinstance(name, str) for name in unset):
        raise InvalidError(f"unset= is a list of names of properties, not {unset!r}", outcome="not_applied")
    names = list(unset)
    if both := sorted(given.keys() & set(names)):
        raise InvalidError(f"property {both[0]!r} is set and unset", outcome="not_applied")
    return await _committed(context, SetProperties(dict(given), tuple(names)))


async def _committed(context: TableContext, edit: TableEdit) -> int:
    done = await context.committer.commit(edit)
    return done.version or done.head.version
