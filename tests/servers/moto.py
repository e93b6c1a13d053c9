"""Starts the locked S3 + DynamoDB server and replaces it when it has grown too large.

moto never gives memory back; `LockedMoto.refresh`, called between test modules, restarts it empty on the same
port once it is past `MAX_MEMORY_BYTES`. So buckets and tables must not be kept from one module to the next.
"""

from __future__ import annotations

import sys

from tests.servers.process import ROOT, ServerProcess, accepts, free_port

MAX_MEMORY_BYTES = 600 * 1024 * 1024

AWS_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class LockedMoto:
    """moto behind one lock; ``url`` is its endpoint for S3 and DynamoDB alike."""

    def __init__(self) -> None:
        self._process = ServerProcess("moto")
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._start()

    def _start(self) -> None:
        self._process.start(
            [sys.executable, "-m", "tests.servers.locked_moto", str(self._port)],
            env={**AWS_ENVIRONMENT, "PYTHONPATH": str(ROOT), "TMPDIR": str(self._process.folder)},
            ready=lambda: accepts(self._port),
            timeout=60.0,
        )

    def refresh(self) -> None:
        """Restart empty, on the same port, if the server has grown past `MAX_MEMORY_BYTES`."""
        if self._process.memory_bytes() > MAX_MEMORY_BYTES:
            self._process.kill()
            self._start()

    def stop(self) -> None:
        """End the server. Idempotent."""
        self._process.stop()
