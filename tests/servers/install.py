"""Installs the test servers under ``.servers/`` (etcd and radosgw: as system packages). Idempotent.

A folder whose stamp holds the very versions asked for is left alone; otherwise it is made anew. moto comes with
the project's own ``dev`` extra and needs nothing here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from tests.servers.process import INSTALL_FOLDER, ServerError

NPM_PACKAGES = {
    "azurite": ["azurite@3.37.0"],
    "dynalite": ["dynalite@4.0.0"],
    "s3rver": ["s3rver@3.7.1"],
}
LOCALSTACK_PACKAGES = [
    "localstack-core[runtime]==4.7.0",
    "cbor2==5.6.5",
    "cryptography==45.0.7",
    "pyopenssl==25.1.0",
    "service_identity",
]
LOCALSTACK_PYTHON = "3.11"
DEBIAN_PACKAGES = {
    "etcd": ["etcd-server"],
    "radosgw": ["ceph-mon", "ceph-osd", "radosgw", "ceph-common"],
}
PROGRAMS = {"etcd": ["etcd"], "radosgw": ["ceph-mon", "ceph-osd", "radosgw", "ceph"]}
DEFAULT = ["azurite", "dynalite", "s3rver", "etcd"]
ALL = [*DEFAULT, "localstack", "radosgw"]
INSTALL_TIMEOUT_SECONDS = 1_200


def install(name: str) -> bool:
    """Install one server; whether anything had to be done. Raises `ServerError`."""
    if name in NPM_PACKAGES:
        return _install_stamped(name, NPM_PACKAGES[name])
    if name == "localstack":
        return _install_stamped(name, LOCALSTACK_PACKAGES)
    if name in DEBIAN_PACKAGES:
        return _install_debian(name)
    raise ServerError(f"no server is called {name!r}; there are {', '.join(ALL)}")


def is_left_out(name: str) -> bool:
    """Whether that server is left out: with ``SLATE_SKIP_AZURE=1`` Azurite, and the others of npm if they are missing;
    etcd where it is missing and cannot be installed, but not where ``CI`` is set."""
    if name == "etcd":
        return not is_installed(name) and not _has_debian() and not os.environ.get("CI")
    if os.environ.get("SLATE_SKIP_AZURE") != "1" or name not in NPM_PACKAGES:
        return False
    return name == "azurite" or not is_installed(name)


def is_installed(name: str) -> bool:
    """Whether `install` would have nothing to do."""
    if name in PROGRAMS:
        return all(shutil.which(program) for program in PROGRAMS[name])
    packages = NPM_PACKAGES.get(name, LOCALSTACK_PACKAGES)
    stamp = INSTALL_FOLDER / name / "installed"
    return stamp.exists() and stamp.read_text() == "\n".join(packages)


def _install_stamped(name: str, packages: Sequence[str]) -> bool:
    if is_installed(name):
        return False
    folder = INSTALL_FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name == "localstack":
        _run([_python_for_localstack(), "-m", "venv", str(folder)])
        _run([str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *packages])
    else:
        npm = shutil.which("npm")
        if npm is None:
            raise ServerError(
                f"{name} needs npm, which is not on the PATH: install Node.js 18 or newer with npm"
                " (SLATE_SKIP_AZURE=1 runs the tests without the servers that come from npm)"
            )
        quiet = ["--no-audit", "--no-fund", "--omit=dev", "--omit=optional", "--loglevel=error"]
        _run([npm, "install", "--prefix", str(folder), *quiet, *packages])
    (folder / "installed").write_text("\n".join(packages))
    return True


def _python_for_localstack() -> str:
    if f"{sys.version_info.major}.{sys.version_info.minor}" == LOCALSTACK_PYTHON:
        return sys.executable
    python = shutil.which(f"python{LOCALSTACK_PYTHON}")
    if python is None:
        raise ServerError(f"LocalStack needs Python {LOCALSTACK_PYTHON}, which is not on the PATH")
    return python


def _has_debian() -> bool:
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def _install_debian(name: str) -> bool:
    if is_installed(name):
        return False
    packages = DEBIAN_PACKAGES[name]
    if not _has_debian():
        raise ServerError(f"{name} needs Debian's {' '.join(packages)}; install them as root")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update", "-qq"], env)
    _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], env)
    return True


def _run(command: Sequence[str], env: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise ServerError(f"{' '.join(command)} failed with status {done.returncode}:\n{done.stdout[-4_000:]}")
