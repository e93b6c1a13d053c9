"""Starts LocalStack's S3, which runs from a virtual environment of its own."""

from __future__ import annotations

from tests.servers.install import is_installed
from tests.servers.process import INSTALL_FOLDER, ServerError, ServerProcess, accepts, free_port


class LocalStack:
    """S3 with its conditions and checksums checked; ``url`` is its endpoint."""

    def __init__(self) -> None:
        if not is_installed("localstack"):
            raise ServerError("localstack is not installed: run scripts/servers install --all")
        port = free_port()
        self._process = ServerProcess("localstack")
        self.url = f"http://127.0.0.1:{port}"
        self._process.start(
            [str(INSTALL_FOLDER / "localstack" / "bin" / "python"), "-m", "localstack.runtime.main"],
            env={
                "SERVICES": "s3",
                "STRICT_SERVICE_LOADING": "1",
                "EAGER_SERVICE_LOADING": "1",
                "DISABLE_EVENTS": "1",
                "SKIP_SSL_CERT_DOWNLOAD": "1",
                "DNS_ADDRESS": "0",
                "GATEWAY_LISTEN": f"127.0.0.1:{port}",
                "FILESYSTEM_ROOT": str(self._process.folder / "root"),
            },
            ready=lambda: accepts(port),
            timeout=60.0,
        )

    def stop(self) -> None:
        """End the server. Idempotent."""
        self._process.stop()
