"""Who calls, and what they may do.

A caller shows a token, a password (in a handshake, for a token that expires), or a client certificate. A file in TOML
says which there are:

    secret = "…"                          # signs tokens; the same for all servers; without it each has its own

    [tokens.etl]
    sha256 = "…"                          # of the token, in hex
    grants = { shop = "write", "*" = "read" }

    [users.ann]
    password = "scrypt:14:8:1:SALT:HASH"  # `slate hash-password` makes it
    grants = { "*" = "admin" }

    [certificates."ann.example.org"]      # the certificate's common name, with --tls-client-ca
    grants = { "*" = "read" }

Grants are by database; ``*`` is any other one. ``read`` < ``write`` < ``admin``. What concerns the catalog as a whole
asks for ``*``.

Rule: no token, password or secret is in a message or a log.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from slate_async.errors import ConfigError
from slate_async.rpc.statuses import StatusError
from slate_async.rpc.tokens import Claims, TokenSigner, digest_of
from slate_async.runtime.protocol import Runtime

ROLES: Final[Mapping[str, int]] = {"read": 1, "write": 2, "admin": 3}
ANY: Final = "*"
SCRYPT: Final = (14, 8, 1)
"""log2 of the cost, block size, parallelism: 16 MiB."""
MAX_COST: Final = 20
MAX_PASSWORD: Final = 1_024


@dataclass(frozen=True, slots=True)
class Caller:
    """One who calls. ``grants``: roles by database."""

    name: str
    grants: Mapping[str, str]

    def may(self, role: str, database: str) -> bool:
        """Whether they have ``role`` in ``database``, or a higher one."""
        held = self.grants.get(database, self.grants.get(ANY, ""))
        return ROLES.get(held, 0) >= ROLES[role]

    def require(self, role: str, database: str) -> None:
        """Raises `StatusError`, PERMISSION_DENIED."""
        if not self.may(role, database):
            where = "the catalog as a whole" if database == ANY else f"database {database!r}"
            said = f"{self.name!r} needs the role {role!r} in {where}"
            raise StatusError(grpc.StatusCode.PERMISSION_DENIED, said)


ANYBODY: Final = Caller("anybody", {ANY: "admin"})
"""Of a server without a file of tokens."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """What the file says."""

    tokens: Mapping[str, Caller] = field(default_factory=dict)
    users: Mapping[str, tuple[str, Caller]] = field(default_factory=dict)
    certificates: Mapping[str, Caller] = field(default_factory=dict)
    secret: bytes | None = field(default=None, repr=False)

    @classmethod
    def read(cls, path: Path) -> Accounts:
        """From a file; blocks. Raises `ConfigError` naming the entry that is wrong, and never what it holds."""
        try:
            said = tomllib.loads(path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the file of tokens {str(path)!r} cannot be read: {type(error).__name__}") from error
        except tomllib.TOMLDecodeError:
            raise ConfigError(f"the file of tokens {str(path)!r} is no TOML") from None
        unknown = set(said) - {"tokens", "users", "certificates", "secret"}
        if unknown:
            raise ConfigError(f"the file of tokens {str(path)!r} has an unknown entry {min(unknown)!r}")
        tokens = {_sha256(entry, at): _caller(name, entry, at) for name, entry, at in _entries(said, "tokens")}
        users = {name: (_password(entry, at), _caller(name, entry, at)) for name, entry, at in _entries(said, "users")}
        certificates = {name: _caller(name, entry, at) for name, entry, at in _entries(said, "certificates")}
        secret = said.get("secret")
        if secret is not None and (not isinstance(secret, str) or len(secret) < 16):
            raise ConfigError("secret in the file of tokens is a string of at least 16 characters")
        return cls(tokens, users, certificates, None if secret is None else secret.encode())


class Authenticator:
    """Knows callers by what they show. ``accounts``: ``None``: everybody may do everything."""

    def __init__(self, accounts: Accounts | None, runtime: Runtime, *, token_ms: int) -> None:
        self._accounts = accounts
        self._runtime = runtime
        self._token_ms = token_ms
        secret = None if accounts is None else accounts.secret
        self._signer = TokenSigner(secret or runtime.ids.token().encode() + runtime.ids.token().encode())
        self.failures = 0

    def caller(self, metadata: Any, identity: Mapping[str, Any]) -> Caller:
        """By the headers of a call and the connection's certificate. Raises `StatusError`, UNAUTHENTICATED.

        identity: gRPC's ``auth_context``"""
        accounts = self._accounts
        if accounts is None:
            return ANYBODY
        token = _bearer(metadata)
        if token is not None:
            found = accounts.tokens.get(digest_of(token)) or self._signed(token)
            if found is not None:
                return found
            raise self._refused("the token is not known, or has expired; log in again")
        for name in identity.get("x509_common_name", ()):
            known = accounts.certificates.get(name.decode("utf-8", "replace"))
            if known is not None:
                return known
        raise self._refused("a token is needed: send it as 'authorization: Bearer …'")

    async def log_in(self, user: str, password: str) -> str:
        """A token for a user. Raises `StatusError`, UNAUTHENTICATED, which does not say what was wrong."""
        accounts = self._accounts
        if accounts is None:
            raise StatusError(grpc.StatusCode.UNIMPLEMENTED, "this server knows no users; call without a token")
        stored, caller = accounts.users.get(user, (_NOBODY, None))
        if len(password) > MAX_PASSWORD:
            raise self._refused("user or password is wrong")
        right = await self._runtime.offload.run(lambda: check_password(stored, password))
        if not right or caller is None:
            raise self._refused("user or password is wrong")
        expires_ms = self._runtime.clock.now_ms() + self._token_ms
        return self._signer.sign(Claims(caller.name, caller.grants, expires_ms))

    def _signed(self, token: str) -> Caller | None:
        claims = self._signer.verify(token, self._runtime.clock.now_ms())
        return None if claims is None else Caller(claims.subject, claims.grants)

    def _refused(self, said: str) -> StatusError:
        self.failures += 1
        return StatusError(grpc.StatusCode.UNAUTHENTICATED, said)


def hashed_password(password: str, salt: bytes) -> str:
    """How the file has it; takes a tenth of a second. ``salt``: 16 random bytes."""
    parts = [base64.b64encode(part).decode() for part in (salt, _scrypt(password, salt, SCRYPT))]
    return ":".join(["scrypt", *map(str, SCRYPT), *parts])


def check_password(stored: str, password: str) -> bool:
    """Whether it is that one; takes a tenth of a second."""
    _, cost, block, parallel, salt, expected = stored.split(":")
    found = _scrypt(password, base64.b64decode(salt), (int(cost), int(block), int(parallel)))
    return hmac.compare_digest(found, base64.b64decode(expected))


def basic_credentials(metadata: Any) -> tuple[str, str] | None:
    """User and password of a header ``authorization: Basic …``."""
    given = _header(metadata, "authorization")
    if given is None or not given.lower().startswith("basic "):
        return None
    try:
        user, colon, password = base64.b64decode(given[6:], validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None


def _bearer(metadata: Any) -> str | None:
    given = _header(metadata, "authorization")
    if given is not None and given.lower().startswith("bearer "):
        return given[7:].strip()
    return _header(metadata, "auth-token-bin")  # of clients that were given it by a handshake


def _header(metadata: Any, name: str) -> str | None:
    for key, value in metadata or ():
        if key.lower() == name:
            return value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return None


def _scrypt(password: str, salt: bytes, costs: tuple[int, int, int]) -> bytes:
    cost, block, parallel = costs
    raw = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(raw, salt=salt, n=1 << cost, r=block, p=parallel, maxmem=1 << 30, dklen=32)


def _entries(said: Mapping[str, Any], kind: str) -> list[tuple[str, Mapping[str, Any], str]]:
    found = said.get(kind, {})
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        raise ConfigError(f"{kind} in the file of tokens are tables, such as [{kind}.name]")
    return [(name, entry, f"{kind}.{name}") for name, entry in found.items()]


def _caller(name: str, entry: Mapping[str, Any], at: str) -> Caller:
    grants = entry.get("grants")
    if not isinstance(grants, dict) or not grants or not all(role in ROLES for role in map(str, grants.values())):
        raise ConfigError(f"{at} in the file of tokens needs grants: read, write or admin by database, or by '*'")
    return Caller(name, grants)


def _sha256(entry: Mapping[str, Any], at: str) -> str:
    digest = entry.get("sha256")
    if not isinstance(digest, str) or len(digest) != 64 or set(digest.lower()) - set("0123456789abcdef"):
        raise ConfigError(f"{at} in the file of tokens needs sha256: 64 hexadecimal digits")
    return digest.lower()


def _password(entry: Mapping[str, Any], at: str) -> str:
    stored = entry.get("password")
    wrong = ConfigError(f"{at} in the file of tokens needs a password as `slate hash-password` prints it")
    if not isinstance(stored, str) or stored.count(":") != 5 or not stored.startswith("scrypt:"):
        raise wrong
    _, cost, block, parallel, salt, digest = stored.split(":")
    try:
        numbers = int(cost), int(block), int(parallel)
        sizes = len(base64.b64decode(salt, validate=True)), len(base64.b64decode(digest, validate=True))
    except ValueError:
        raise wrong from None
    if not 10 <= numbers[0] <= MAX_COST or not 1 <= numbers[1] <= 32 or numbers[2] != 1 or sizes != (16, 32):
        raise wrong
    return stored


_NOBODY: Final = f"scrypt:14:8:1:{base64.b64encode(bytes(16)).decode()}:{base64.b64encode(bytes(32)).decode()}"
"""Checked for users that there are not, so that they take as long."""
