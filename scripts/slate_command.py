"""Where the ``slate`` command begins: small, so that Ctrl-C ends it in one line while the rest is still imported."""

from __future__ import annotations

import atexit
import os
import signal
import sys

INTERRUPTED = 130
UNSAID = 120
"""The interpreter's own code for output that could not be flushed at its end."""


def main() -> None:
    """Run the command line and exit with its code."""
    ending = [1]
    atexit.register(_leave, ending)  # the first one here runs after all others
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as in the background
        signal.signal(signal.SIGINT, _end)
    from slate_async.cli import main as command  # noqa: PLC0415 - it takes a second

    try:
        command()
        ending[0] = 0
    except SystemExit as end:
        ending[0] = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise


def _leave(ending: list[int]) -> None:
    """End the process before the interpreter is taken down: a thread of a store's client that comes back from a request
    just then, to one nobody waits for any more, would abort it."""
    code = ending[0]
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or UNSAID
    os._exit(code)


def _end(number: int, frame: object) -> None:
    """Nothing is open: before a command begins, and after it has ended."""
    said = '{"error":"Interrupted","message":"interrupted","outcome":null,"exit_code":130}'
    os.write(2, (said if "--json" in sys.argv else "interrupted").encode() + b"\n")
    os._exit(INTERRUPTED)
