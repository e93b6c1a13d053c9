"""Starts ceph's S3 gateway: one monitor, one storage daemon in memory, one gateway, all in one scratch folder.

A real store that checks signatures, and whose If-Match never matches a quoted ETag: creation is exclusive on
it, replacement is not.

Ordering: the monitor must have a quorum before anything can be asked of it; the storage daemon needs its id and
key from the monitor; the gateway needs a storage daemon that is up to make its pools.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

from tests.servers.process import ServerError, ServerProcess, accepts, free_port

ACCESS_KEY = "slate-test-access"
SECRET_KEY = "slate-test-secret"
COMMAND_TIMEOUT_SECONDS = 60.0
START_TIMEOUT_SECONDS = 30.0

CONFIG = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon_port},v1:127.0.0.1:{mon_port_v1}]
mon initial members = a
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {folder}/$name.keyring
run dir = {folder}
admin socket = {folder}/$name.asok
log file = {folder}/$name.log
mon data = {folder}/mon
osd data = {folder}/osd
rgw data = {folder}/rgw
crash dir = {folder}/crash
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
mon osd min down reporters = 1
mon warn on pool no redundancy = false
osd objectstore = memstore
memstore device bytes = 4294967296
ms bind ipv6 = false
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw enable usage log = false
debug mon = 0
debug osd = 0
debug rgw = 0

[osd]
public addr = 127.0.0.1
cluster addr = 127.0.0.1

[mon]
keyring = {folder}/mon/keyring
"""


class Radosgw:
    """A running gateway; ``url``, ``access_key`` and ``secret_key`` are what a client needs."""

    def __init__(self) -> None:
        missing = [name for name in ("ceph", "ceph-mon", "ceph-osd", "radosgw") if shutil.which(name) is None]
        if missing:
            raise ServerError(f"{', '.join(missing)} not found: run scripts/servers install --all as root on Debian")
        self.access_key = ACCESS_KEY
        self.secret_key = SECRET_KEY
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._mon = ServerProcess("ceph-mon")
        self._osd = ServerProcess("ceph-osd")
        self._gateway = ServerProcess("radosgw")
        self._folder = self._mon.folder
        self._config = self._folder / "ceph.conf"
        try:
            self._start_mon()
            self._start_osd()
            self._start_gateway()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the three daemons. Idempotent."""
        for process in (self._gateway, self._osd, self._mon):
            process.stop()

    def _start_mon(self) -> None:
        fsid, port, port_v1 = str(uuid.uuid4()), free_port(), free_port()
        self._config.write_text(
            CONFIG.format(fsid=fsid, folder=self._folder, mon_port=port, mon_port_v1=port_v1, port=self._port)
        )
        admin, mon, monmap = self._keyring("client.admin"), self._keyring("mon."), self._folder / "monmap"
        self._run("ceph-authtool", "--create-keyring", str(mon), "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        caps = [word for daemon in ("mon", "osd", "mgr") for word in ("--cap", daemon, "allow *")]
        self._run("ceph-authtool", "--create-keyring", str(admin), "--gen-key", "-n", "client.admin", *caps)
        self._run("ceph-authtool", str(mon), "--import-keyring", str(admin))
        address = f"[v2:127.0.0.1:{port},v1:127.0.0.1:{port_v1}]"
        self._run("monmaptool", "--create", "--addv", "a", address, "--fsid", fsid, str(monmap))
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(monmap), "--keyring", str(mon))
        self._mon.start(
            ["ceph-mon", "-c", str(self._config), "-i", "a", "-f"],
            ready=lambda: accepts(port),
            timeout=START_TIMEOUT_SECONDS,
        )

    def _start_osd(self) -> None:
        osd_uuid = str(uuid.uuid4())
        number = self._ceph("osd", "new", osd_uuid).strip()
        caps = ["mon", "allow profile osd", "osd", "allow *"]
        self._ceph("auth", "get-or-create", f"osd.{number}", *caps, "-o", str(self._keyring(f"osd.{number}")))
        (self._folder / "osd").mkdir()
        self._run("ceph-osd", "-i", number, "--mkfs", "--osd-uuid", osd_uuid)
        self._osd.start(
            ["ceph-osd", "-c", str(self._config), "-i", number, "-f"],
            ready=lambda: "1 up" in self._ceph("osd", "stat"),
            timeout=START_TIMEOUT_SECONDS,
        )

    def _start_gateway(self) -> None:
        name = "client.rgw"
        caps = ["mon", "allow rw", "osd", "allow rwx"]
        self._ceph("auth", "get-or-create", name, *caps, "-o", str(self._keyring(name)))
        self._gateway.start(
            ["radosgw", "-c", str(self._config), "-n", name, "-f"],
            ready=lambda: accepts(self._port),
            timeout=START_TIMEOUT_SECONDS,
        )
        keys = ["--access-key", self.access_key, "--secret-key", self.secret_key]
        self._run("radosgw-admin", "user", "create", "--uid", "slate", "--display-name", "slate tests", *keys)

    def _keyring(self, name: str) -> Path:
        return self._folder / f"{name}.keyring"

    def _ceph(self, *arguments: str) -> str:
        return self._run("ceph", "--connect-timeout", "30", *arguments)

    def _run(self, program: str, *arguments: str) -> str:
        """Run a ceph command to its end against this cluster; its standard output. Raises `ServerError`."""
        settings = [] if program in ("monmaptool", "ceph-authtool") else ["-c", str(self._config)]
        command = [program, *settings, *arguments]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self._folder,
            timeout=COMMAND_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise ServerError(f"{' '.join(command)} failed with status {done.returncode}:\n{done.stderr[-2_000:]}")
        return done.stdout
