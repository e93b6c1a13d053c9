"""Merge operators by name: those of this package, those that a process registers, and entry points of packages.

A database stores the name alone. So each process that merges its rows, a compactor or a task of Spark among them, must
know the operator by that name; where it does not, nothing is opened, and nothing lost.
"""

from __future__ import annotations

import re
from importlib.metadata import entry_points

from slate_async.errors import ConfigError, InvalidError
from slate_async.merge_operators.json_patch import JsonMergePatch
from slate_async.merge_operators.protocol import MergeOperator
from slate_async.merge_operators.values import AddI64, Append, Extreme, SetUnion

ENTRY_POINTS = "slate_async.merge_operators"
"""The group of entry points. Each is named as its operator, and loads as an operator, or a class of them."""

NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")

_shipped: dict[str, MergeOperator] = {
    operator.name: operator
    for operator in (AddI64(), Extreme("max", max), Extreme("min", min), Append(), SetUnion(), JsonMergePatch())
}
_registered: dict[str, MergeOperator] = {}


def check_operator_name(name: object) -> str:
    """``name``, if an operator may be called so. Raises `InvalidError`."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidError(
            f"a merge operator's name has 1 to 64 of a-z, 0-9, '_', '-' and '.', a letter first; not {name!r}"
        )
    return name


def register_merge_operator(operator: MergeOperator) -> None:
    """Let databases of this process merge by ``operator``, which they name. Registering it again changes nothing.

    Raises `InvalidError` if another operator has the name."""
    name = check_operator_name(getattr(operator, "name", None))
    _check_methods(operator, name)
    known = _shipped.get(name) or _registered.get(name)
    if known is not None and known is not operator:
        raise InvalidError(f"there is another merge operator {name!r}; a name stands for one, and for ever")
    _registered[name] = operator


def merge_operator(name: str, *, of: str = "the database") -> MergeOperator:
    """The operator called ``name``. ``of`` is what merges by it, for the error.

    Raises `ConfigError` if this process does not have it."""
    found = _shipped.get(name) or _registered.get(name)
    if found is None:
        found = _from_entry_point(name, of)
    if found is None:
        raise ConfigError(
            f"{of} merges by the operator {name!r}, which this process does not have; install the package that has it,"
            " or call register_merge_operator before you open the database"
        )
    return found


def _from_entry_point(name: str, of: str) -> MergeOperator | None:
    for entry in entry_points(group=ENTRY_POINTS, name=name):
        try:
            loaded = entry.load()
            operator: MergeOperator = loaded() if isinstance(loaded, type) else loaded
            _check_methods(operator, name)
            if operator.name != name:
                raise InvalidError(f"it is called {operator.name!r}")
        except Exception as error:
            raise ConfigError(f"{of} merges by the operator {name!r}; {entry.value} does not load: {error}") from error
        return _registered.setdefault(name, operator)
    return None


def _check_methods(operator: object, name: str) -> None:
    missing = [method for method in ("check", "fold", "apply") if not callable(getattr(operator, method, None))]
    if missing:
        raise InvalidError(f"the merge operator {name!r} has no {' and no '.join(missing)}: see MergeOperator")
