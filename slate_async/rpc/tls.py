"""TLS of servers and clients, from files in PEM; and where it may be left out."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

import grpc

from slate_async.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Files of a server. ``client_ca``: clients must show a certificate that one of these has signed (mTLS)."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Raises `ConfigError` for a file that cannot be read."""
        pair = [(_read(self.key), _read(self.cert))]
        authority = None if self.client_ca is None else _read(self.client_ca)
        return grpc.ssl_server_credentials(pair, authority, require_client_auth=authority is not None)


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Files of a client. ``ca``: whom it trusts instead of the machine's authorities; the others: who it is."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Raises `ConfigError` for a file that cannot be read, and a certificate without its key."""
        if (self.cert is None) != (self.key is None):
            raise ConfigError("a client's certificate and its key are given together")
        parts = [None if path is None else _read(path) for path in (self.ca, self.key, self.cert)]
        return grpc.ssl_channel_credentials(*parts)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _read(path: Path) -> bytes:
    try:
        found = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the TLS file {str(path)!r} cannot be read: {error.strerror}") from error
    if b"-----BEGIN" not in found:
        raise ConfigError(f"the TLS file {str(path)!r} is not in PEM")
    return found
