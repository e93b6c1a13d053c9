"""``python -m tests.servers install [--all] [NAME...]`` and ``python -m tests.servers run [NAME...]``."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable
from typing import Protocol

from tests.servers import node
from tests.servers.etcd import etcd
from tests.servers.install import ALL, DEFAULT, install, is_left_out
from tests.servers.localstack import LocalStack
from tests.servers.moto import LockedMoto
from tests.servers.process import ServerError
from tests.servers.radosgw import ACCESS_KEY, SECRET_KEY, Radosgw


class Server(Protocol):
    """What all launchers give."""

    url: str

    def stop(self) -> None:
        """End the server. Idempotent."""


LAUNCHERS: dict[str, Callable[[], Server]] = {
    "moto": LockedMoto,
    "azurite": node.azurite,
    "dynalite": node.dynalite,
    "s3rver": node.s3rver,
    "etcd": etcd,
    "localstack": LocalStack,
    "radosgw": Radosgw,
}
CREDENTIALS = {
    "moto": "any key and secret; S3 and DynamoDB",
    "azurite": f"account {node.AZURITE_ACCOUNT}, key {node.AZURITE_KEY}",
    "dynalite": "any key and secret",
    "s3rver": f"key and secret {node.S3RVER_KEY}; ignores conditions",
    "etcd": "no user; a metastore's URL",
    "localstack": "any key and secret",
    "radosgw": f"key {ACCESS_KEY}, secret {SECRET_KEY}",
}


def _install(names: list[str]) -> None:
    for name in names:
        if is_left_out(name) and (name in ("azurite", "etcd") or shutil.which("npm") is None):
            why = "it needs root on Debian, or to be installed" if name == "etcd" else "SLATE_SKIP_AZURE=1"
            print(f"{name}: left out, {why}", flush=True)
            continue
        started = time.monotonic()
        done = install(name)
        print(f"{name}: {f'installed in {time.monotonic() - started:.0f} s' if done else 'is installed'}", flush=True)


def _run(names: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    servers = []
    for name in names:
        server = LAUNCHERS[name]()
        servers.append(server)
        print(f"{name}: {server.url} ({CREDENTIALS[name]})", flush=True)
    print("running; Ctrl-C ends them", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        print("ending")
    finally:
        for server in servers:
            server.stop()


def main() -> None:
    """Parse the command line and do what it says."""
    parser = argparse.ArgumentParser(prog="scripts/servers", description="the servers the tests run against")
    commands = parser.add_subparsers(dest="command", required=True)
    installing = commands.add_parser("install", help=f"install them (by default {', '.join(DEFAULT)})")
    installing.add_argument("--all", action="store_true", help=f"all of {', '.join(ALL)}")
    installing.add_argument("names", nargs="*", metavar="NAME")
    running = commands.add_parser("run", help="start them and print their endpoints")
    running.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(LAUNCHERS)}; moto by default")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in LAUNCHERS]:
        parser.error(f"no server is called {', '.join(unknown)}")
    try:
        if options.command == "install":
            _install(options.names or (ALL if options.all else DEFAULT))
        else:
            _run(options.names or ["moto"])
    except ServerError as error:
        sys.exit(f"scripts/servers: {error}")


if __name__ == "__main__":
    main()
