"""A server as a child process: start it, wait until it answers, and stop it for sure.

Invariant: nothing a `ServerProcess` started outlives the process that started it. Three nets hold that:
`stop` kills the child's own process group; `atexit` stops what was forgotten; on Linux the kernel kills the
child when its parent dies (`tests.servers.guard`).
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALL_FOLDER = ROOT / ".servers"
POLL_SECONDS = 0.02
LOG_TAIL_CHARS = 4_000


class ServerError(RuntimeError):
    """A server could not be installed or started; the message says what to do."""


def free_port() -> int:
    """A loopback TCP port that no process listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def accepts(port: int) -> bool:
    """Whether something listens on a loopback port."""
    with socket.socket() as sock:
        sock.settimeout(1.0)
        return sock.connect_ex(("127.0.0.1", port)) == 0


class ServerProcess:
    """One child process with a scratch folder and a log file of its own.

    ``folder`` exists from construction to `stop`. Not thread-safe; the kernel's net is tied to the thread
    that calls `start`, which must live as long as the server is wanted.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix=f"slate-{name}-"))
        self._log = self.folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.stop)

    @property
    def pid(self) -> int:
        """Process id of the running child."""
        if self._process is None:
            raise ServerError(f"{self.name} is not running")
        return self._process.pid

    def start(
        self,
        command: Sequence[str],
        *,
        ready: Callable[[], bool],
        env: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Start ``command`` in the scratch folder and wait until ``ready()``.

        Raises `ServerError` with the end of the log when the child dies or is not ready in ``timeout`` seconds."""
        guard = [sys.executable, "-I", str(Path(__file__).with_name("guard.py")), str(os.getpid())]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*guard, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        deadline = time.monotonic() + timeout
        while not ready():
            if self._process.poll() is not None:
                problem = f"ended with status {self._process.returncode} before it was ready"
            elif time.monotonic() > deadline:
                problem = f"was not ready within {timeout:.0f} s"
            else:
                time.sleep(POLL_SECONDS)
                continue
            tail = self.log_tail()
            self.stop()
            raise ServerError(f"{self.name} {problem}; end of its log:\n{tail}")

    def log_tail(self) -> str:
        """The end of what the server printed."""
        if not self._log.exists():
            return ""
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARS:]

    def memory_bytes(self) -> int:
        """Resident memory of the child; 0 where the system does not say."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except FileNotFoundError:
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """Kill the process group and keep the scratch folder, so that `start` may be called again.

        At once, without a polite signal first: nothing a test server holds is worth keeping."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the whole group has ended by itself
        finally:
            process.wait()

    def stop(self) -> None:
        """Kill the process group and remove the scratch folder. Idempotent."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.stop)
