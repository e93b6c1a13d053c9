"""What mkdocstrings asks while it builds the site: functions that are made of methods are shown as functions.

Read as source, ``open = in_private_environment(Opener.open)`` is an attribute without arguments.
"""

from __future__ import annotations

import copy
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import griffe

MAKERS = {"in_private_environment", "without_await", "_without_await"}


class Openings(griffe.Extension):
    """Puts a function in the place of each attribute that one of `MAKERS` gives its value."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called when all of the package is read."""
        for holder in _holders(pkg):
            for name, member in list(holder.members.items()):
                if not member.is_alias and member.is_attribute and _maker(member.value) in MAKERS:
                    holder.set_member(name, _function(pkg, holder, name))


def _holders(holder: Any) -> Iterator[Any]:
    """Modules and classes, inside each other."""
    yield holder
    for inner in list(holder.members.values()):
        if not inner.is_alias and (inner.is_module or inner.is_class):
            yield from _holders(inner)


def _maker(value: Any) -> str | None:
    return str(value.function) if isinstance(value, griffe.ExprCall) else None


def _function(pkg: griffe.Module, holder: Any, name: str) -> griffe.Function:
    module = holder.module.path
    inside = f"{holder.path}.{name}".removeprefix(f"{module}.")
    made = pkgutil.resolve_name(f"{module}:{inside}")
    method = inspect.unwrap(made)
    declared = pkg.modules_collection[f"{method.__module__}.{method.__qualname__}"]
    shown, returned = inspect.signature(made), inspect.signature(method).return_annotation
    same = shown.return_annotation == returned
    function = griffe.Function(
        name,
        parent=holder,
        parameters=griffe.Parameters(
            *(copy.copy(kept) for kept in declared.parameters if kept.name in shown.parameters)
        ),
        returns=declared.returns if same else griffe.ExprName(shown.return_annotation, parent=holder),
    )
    function.docstring = griffe.Docstring(declared.docstring.value, parent=function)
    return function
