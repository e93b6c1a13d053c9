"""Public names that are imported at first use, so that a process that needs few of them starts sooner.

Such a package has its imports twice: for type checkers, and by name for `late_names`. None of its modules is called as
a public name is: to import it would put the module in the name's place.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


def late_names(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """The function ``__getattr__`` of ``package``. Each name is looked for once, and then the package's own.

    modules: the public names of each module, with spaces between; of a module without names, it is public itself"""
    homes = {name: module for module, names in modules.items() for name in names.split()}
    whole = {module.rpartition(".")[2]: module for module, names in modules.items() if not names}

    def find(name: str) -> object:
        """The public name. Raises AttributeError."""
        if name in whole:
            return _imported(whole[name])
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(_imported(homes[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return find


def _imported(module: str) -> ModuleType:
    """Imported without looking for garbage meanwhile, which takes a quarter of the time: what modules make lives on."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if collecting:
            gc.enable()
