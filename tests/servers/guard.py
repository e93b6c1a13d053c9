"""Becomes another program that dies when its parent does: ``guard.py PARENT_PID COMMAND ARG...``.

Asking the kernel between fork and exec would need code that runs in a forked, possibly threaded parent; a
small program in between needs none.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for a kill on the parent's death (Linux only), make sure it is still alive, and exec."""
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent has ended already")
    os.execvp(sys.argv[2], sys.argv[2:])


main()
