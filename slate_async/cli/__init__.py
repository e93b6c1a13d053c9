"""The ``slate`` command. Its packages (typer, rich) come with the extra ``slate-async[cli]``.

Nothing of the engine imports this package, and importing it imports neither typer nor rich.
"""

from __future__ import annotations

import sys

_OPTIONAL = frozenset({"typer", "rich", "click"})


def main() -> None:
    """Run the command line and exit with its code (see `slate_async.cli.exit_codes`)."""
    try:
        from slate_async.cli.app import run  # noqa: PLC0415 - optional packages
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OPTIONAL:
            raise
        sys.stderr.write("slate: the command line needs more packages: pip install 'slate-async[cli]'\n")
        raise SystemExit(2) from None
    run()
