"""Starts the servers that come from npm: Azurite (Azure Blob), dynalite (DynamoDB) and s3rver.

s3rver ignores conditions on writes: it is the store the capability probe must refuse, never one to rely on.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from tests.servers.install import is_installed
from tests.servers.process import INSTALL_FOLDER, ServerError, ServerProcess, accepts, free_port

AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and key every Azurite has; they are public and open nothing else."""

S3RVER_KEY = "S3RVER"
"""s3rver's only access key, and its secret."""


class NodeServer:
    """One npm server; ``url`` is its endpoint (for Azurite: the account's URL)."""

    def __init__(self, name: str, program: str, arguments: Sequence[str], url: str) -> None:
        script = INSTALL_FOLDER / name / "node_modules" / ".bin" / program
        node = shutil.which("node")
        if node is None or not is_installed(name):
            raise ServerError(f"{name} is not installed: run scripts/servers install (it needs Node.js and npm)")
        port = free_port()
        self._process = ServerProcess(name)
        self.url = url.format(port=port)
        self._process.start(
            [node, str(script), *(argument.format(port=port, folder=self._process.folder) for argument in arguments)],
            ready=lambda: accepts(port),
        )

    def stop(self) -> None:
        """End the server. Idempotent."""
        self._process.stop()


def azurite() -> NodeServer:
    """Azure Blob, in memory; account and key are `AZURITE_ACCOUNT` and `AZURITE_KEY`."""
    arguments = ["--blobHost", "127.0.0.1", "--blobPort", "{port}", "--inMemoryPersistence"]
    quiet = ["--blobKeepAliveTimeout", "300", "--skipApiVersionCheck", "--silent", "--disableTelemetry"]
    url = f"http://127.0.0.1:{{port}}/{AZURITE_ACCOUNT}"
    return NodeServer("azurite", "azurite-blob", [*arguments, *quiet], url)


def dynalite() -> NodeServer:
    """DynamoDB, in memory; tables are usable at once."""
    arguments = ["--host", "127.0.0.1", "--port", "{port}", "--createTableMs", "0", "--deleteTableMs", "0"]
    return NodeServer("dynalite", "dynalite", arguments, "http://127.0.0.1:{port}")


def s3rver() -> NodeServer:
    """S3 without conditions; its only key and secret are `S3RVER_KEY`."""
    arguments = ["--address", "127.0.0.1", "--port", "{port}", "--directory", "{folder}/data", "--silent"]
    return NodeServer("s3rver", "s3rver", arguments, "http://127.0.0.1:{port}")
