"""How an etcd is reached: its endpoints, TLS, and by whom. Secrets come from the variables that etcdctl has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from metastores.errors import MetaStoreInvalidError

PORT = 2379
MAX_ENDPOINTS = 16
CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE = "ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY"
USER_VARIABLE, PASSWORD_VARIABLE = "ETCDCTL_USER", "ETCDCTL_PASSWORD"
_ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?\Z")


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """See the module docstring.

    endpoints: ``host:port`` of each
    tls: whether connections are encrypted, and servers prove who they are
    authorities, certificate, private_key: PEM; without authorities those of the system, without a certificate none is
    shown
    """

    endpoints: Sequence[str]
    tls: bool = False
    authorities: bytes | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    private_key: bytes | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, endpoints: Sequence[str], *, tls: bool, environment: Mapping[str, str]) -> EtcdAccess:
        """``environment`` names files and users. Raises `MetaStoreInvalidError`."""
        checked = [check_endpoint(endpoint) for endpoint in endpoints]
        if not 0 < len(checked) <= MAX_ENDPOINTS:
            raise MetaStoreInvalidError(f"an etcd has 1 to {MAX_ENDPOINTS} endpoints, not {len(checked)}")
        user, _, password = environment.get(USER_VARIABLE, "").partition(":")
        password = password or environment.get(PASSWORD_VARIABLE, "")
        if user and not password:
            raise MetaStoreInvalidError(f"{USER_VARIABLE} names a user; set {PASSWORD_VARIABLE}, too")
        certificate, key = _file(environment, CERT_VARIABLE), _file(environment, KEY_VARIABLE)
        if (certificate is None) != (key is None):
            raise MetaStoreInvalidError(f"{CERT_VARIABLE} and {KEY_VARIABLE} are needed together")
        return cls(
            tuple(checked),
            tls,
            _file(environment, CA_VARIABLE) if tls else None,
            certificate if tls else None,
            key if tls else None,
            user or None,
            password or None,
        )


def check_endpoint(endpoint: str) -> str:
    """``host:port`` of an endpoint; the port is 2379 without one. Raises `MetaStoreInvalidError`."""
    found = _ENDPOINT.match(endpoint)
    port = int(found[2]) if found and found[2] else PORT
    if found is None or not 0 < port < 65_536:
        raise MetaStoreInvalidError("an endpoint of an etcd is host:port, with a port from 1 to 65535")
    return f"{found[1]}:{port}"


def _file(environment: Mapping[str, str], variable: str) -> bytes | None:
    path = environment.get(variable)
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MetaStoreInvalidError(f"{variable}: {path} cannot be read: {error.strerror}") from error
