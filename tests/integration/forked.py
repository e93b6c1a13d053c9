"""Processes that open or adopt a place, many and quickly: one imports the engine, and forks for each line it reads.

In, JSON: ``{"name", "what", "path", "metastore", "settings"}``; ``what`` is ``open`` (which makes a missing database,
and puts one row, the name) or ``adopt``. Out: ``begun NAME PID`` · ``ack NAME`` · ``done NAME`` ·
``failed NAME TYPE MESSAGE`` · ``ended NAME``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import aioboto3  # noqa: F401 - imported once, before the forks, as are the others
import obstore.store  # noqa: F401

import slate_async as slate


def say(line: str) -> None:
    os.write(1, line.replace("\n", " ").encode() + b"\n")


async def act(order: dict[str, Any]) -> None:
    name = order["name"]
    there = {"metastore": order["metastore"], "settings": slate.Settings(**order["settings"])}
    try:
        if order["what"] == "adopt":
            async with slate.open_admin(order["path"], **there) as admin:
                await admin.adopt_place()
        else:
            async with slate.open(order["path"], **there) as db:
                await db.put(name.encode(), b"v")
                say(f"ack {name}")
    except slate.SlateError as error:
        say(f"failed {name} {type(error).__name__} {error}")
    else:
        say(f"done {name}")


def main() -> None:
    alive: dict[int, str] = {}

    def reap(number: int, frame: object) -> None:
        while alive:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            say(f"ended {alive.pop(pid)}")

    signal.signal(signal.SIGCHLD, reap)
    say("ready")
    while line := sys.stdin.readline():
        order = json.loads(line)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            asyncio.run(act(order))
            os._exit(0)
        alive[pid] = order["name"]
        say(f"begun {order['name']} {pid}")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


if __name__ == "__main__":
    main()
