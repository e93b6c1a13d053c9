"""How the process of a stream's planner ends.

Spark calls a reader's `stop` only where it reads the end of its pipe: when the JVM has died. A query that is stopped,
has come to its end or fails has its process terminated, by SIGTERM, once or twice within milliseconds. Unheeded, that
ends it on the spot, with nothing given back. Heeded, it becomes the end of the program, which Spark answers by `stop`.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

_terminated = False


def heed_termination() -> None:
    """From now on SIGTERM raises `SystemExit`, unless the program has an answer of its own."""
    if _is_main() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def finish_first() -> None:
    """What is done from now on, to stop, is not to be broken off by another SIGTERM."""
    if _is_main() and signal.getsignal(signal.SIGTERM) is _terminate:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def finished() -> None:
    """All is given back. A process that was terminated ends, because Spark no longer listens to it."""
    if _terminated:
        os._exit(0)
    if _is_main() and signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    global _terminated
    _terminated = True
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(0)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
