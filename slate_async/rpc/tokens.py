"""Bearer tokens that a server gives out and knows again: who, until when, and what they may do, under an HMAC.

Layout: ``slate1.`` claims ``.`` HMAC-SHA256 of all that comes before, both in URL-safe Base64 without padding. Claims
are JSON: ``sub``, ``exp`` (seconds since 1970), ``grants``. All servers with the same secret know a token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from slate_async.errors import ConfigError

PREFIX: Final = "slate1"
MAX_TOKEN: Final = 4_096
"""Characters."""
MIN_SECRET: Final = 16


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says. ``expires_ms``: since 1970."""

    subject: str
    grants: Mapping[str, str]
    expires_ms: int


class TokenSigner:
    """Signs tokens, and knows those that it or another one with the same ``secret`` has signed."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < MIN_SECRET:
            raise ConfigError(f"a secret that signs tokens has at least {MIN_SECRET} bytes")
        self._secret = secret

    def sign(self, claims: Claims) -> str:
        """A token."""
        said = {"sub": claims.subject, "exp": claims.expires_ms / 1_000, "grants": dict(claims.grants)}
        body = f"{PREFIX}.{_pack(json.dumps(said, separators=(',', ':')).encode())}"
        return f"{body}.{_pack(self._mac(body))}"

    def verify(self, token: str, now_ms: int) -> Claims | None:
        """What it says; ``None`` for one that is not ours, and for one that has expired."""
        body, _, mac = token.rpartition(".")
        if len(token) > MAX_TOKEN or not token.isascii() or not body.startswith(f"{PREFIX}."):
            return None
        if not hmac.compare_digest(mac, _pack(self._mac(body))):
            return None
        said: Any = json.loads(_unpack(body.removeprefix(f"{PREFIX}.")))
        expires_ms = round(said["exp"] * 1_000)
        return Claims(said["sub"], said["grants"], expires_ms) if now_ms < expires_ms else None

    def _mac(self, body: str) -> bytes:
        return hmac.digest(self._secret, body.encode(), "sha256")


def digest_of(token: str) -> str:
    """How files name a token that has no claims: SHA-256, in hex. Such tokens are random, so no salt is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


def _pack(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _unpack(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
