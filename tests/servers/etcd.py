"""Starts etcd: one server, or a cluster whose members can be killed, stopped and started again one by one."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence

from tests.servers.process import ServerError, ServerProcess, accepts, free_port

START_TIMEOUT_SECONDS = 30.0


class EtcdMember:
    """One server of a cluster. Its data outlives `kill`."""

    def __init__(self, name: str, port: int, peer_port: int, cluster: str) -> None:
        if shutil.which("etcd") is None:
            raise ServerError("etcd is not on the PATH: run scripts/servers install etcd as root on Debian")
        self.endpoint = f"127.0.0.1:{port}"
        self._port = port
        self._process = ServerProcess("etcd")
        client, peer = f"http://{self.endpoint}", f"http://127.0.0.1:{peer_port}"
        self._command = [
            "etcd",
            *("--name", name, "--data-dir", str(self._process.folder / "data"), "--logger", "zap"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", cluster, "--initial-cluster-state", "new"),
            *("--heartbeat-interval", "100", "--election-timeout", "1000", "--log-level", "error"),
        ]

    def start(self, *, wait: bool = True) -> None:
        """Start it, for the first time or again; ``wait``: until it listens."""
        self._process.start(
            self._command,
            env={"ETCD_UNSUPPORTED_ARCH": os.uname().machine.replace("aarch64", "arm64")},
            ready=lambda: not wait or accepts(self._port),
            timeout=START_TIMEOUT_SECONDS,
        )

    def pause(self) -> None:
        """SIGSTOP the process group."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT the process group."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL it; its data stays."""
        self._process.kill()

    def stop(self) -> None:
        """Kill it and remove its data. Idempotent."""
        self._process.stop()


class EtcdCluster:
    """Members that elect a leader. ``url`` names them all, as ``metastore=`` takes it without a prefix."""

    def __init__(self, size: int = 3) -> None:
        ports = [(free_port(), free_port()) for _ in range(size)]
        cluster = ",".join(f"m{at}=http://127.0.0.1:{peer}" for at, (_, peer) in enumerate(ports))
        self.members: Sequence[EtcdMember] = [
            EtcdMember(f"m{at}", port, peer, cluster) for at, (port, peer) in enumerate(ports)
        ]
        self.endpoints = [member.endpoint for member in self.members]
        self.url = f"etcd://{','.join(self.endpoints)}"
        try:
            for at, member in enumerate(self.members):
                member.start(wait=at == size - 1)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all members. Idempotent."""
        for member in self.members:
            member.stop()


def etcd() -> EtcdCluster:
    """A cluster of one."""
    return EtcdCluster(1)
