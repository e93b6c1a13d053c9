"""An S3 on loopback that answers late and counts: ``python -m tests.benchmarks.slow_s3 PORT``, or `SlowS3` to use it.

It is the tests' locked moto. Each request waits before it takes its turn, so any number of them wait at the same time,
as at a distant store; `SlowS3.answer_after` says how long, `SlowS3.counts` how many came.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from tests.servers.locked_moto import Handler, Server
from tests.servers.moto import AWS_ENVIRONMENT
from tests.servers.process import ROOT, ServerProcess, accepts, free_port

CONTROL = "/-/"
START_S = 60.0


class Slow:
    """What all connections share."""

    lock = threading.Lock()
    seconds = 0.0
    counts: ClassVar[Counter[str]] = Counter()


class SlowHandler(Handler):
    """Counts, waits, and goes on as the tests' server."""

    def _serve(self) -> None:
        if self.path.startswith(CONTROL):
            self._control()
            return
        with Slow.lock:
            Slow.counts[self.command] += 1
            Slow.counts["LIST"] += self.command == "GET" and "list-type=" in self.path
        time.sleep(Slow.seconds)
        super()._serve()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve

    def _control(self) -> None:
        """``/-/counts``, or ``/-/delay/SECONDS``."""
        word, _, value = self.path.removeprefix(CONTROL).partition("/")
        if word == "delay":
            Slow.seconds = float(value)
        with Slow.lock:
            body = json.dumps(Slow.counts).encode()
        self._answer("200 OK", [("Content-Type", "application/json")], body)


class SlowS3:
    """A running server; ``url`` is its endpoint."""

    def __init__(self, url: str) -> None:
        self.url = url

    def _ask(self, path: str) -> dict[str, int]:
        with urllib.request.urlopen(self.url + CONTROL + path, timeout=START_S) as answer:
            return dict(json.load(answer))

    def answer_after(self, seconds: float) -> None:
        """Let every request from now on wait so long."""
        self._ask(f"delay/{seconds}")

    def counts(self) -> Counter[str]:
        """Requests so far, by method; ``LIST`` are those of ``GET`` that list."""
        return Counter(self._ask("counts"))

    def make_bucket(self, name: str) -> None:
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=START_S).close()


@contextmanager
def slow_s3() -> Iterator[SlowS3]:
    """Start a server of one's own, without any delay yet. Its credentials are in this process's environment."""
    os.environ.update(AWS_ENVIRONMENT)
    process, port = ServerProcess("slow-s3"), free_port()
    try:
        process.start(
            [sys.executable, "-m", "tests.benchmarks.slow_s3", str(port)],
            env={**AWS_ENVIRONMENT, "PYTHONPATH": str(ROOT), "TMPDIR": str(process.folder)},
            ready=lambda: accepts(port),
            timeout=START_S,
        )
        yield SlowS3(f"http://127.0.0.1:{port}")
    finally:
        process.stop()


def main() -> None:
    """Serve on the loopback port named by the first argument, until killed."""
    Server(("127.0.0.1", int(sys.argv[1])), SlowHandler).serve_forever()


if __name__ == "__main__":
    main()
