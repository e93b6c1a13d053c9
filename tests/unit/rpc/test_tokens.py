"""Signed tokens."""

from __future__ import annotations

import pytest

from slate_async.errors import ConfigError
from slate_async.rpc.tokens import Claims, TokenSigner

SIGNER = TokenSigner(b"0123456789abcdef")
CLAIMS = Claims("ann", {"shop": "write"}, 10_000)


def test_a_token_says_what_was_signed_until_it_expires() -> None:
    token = SIGNER.sign(CLAIMS)
    assert SIGNER.verify(token, 9_999) == CLAIMS
    assert SIGNER.verify(token, 10_000) is None
    assert TokenSigner(b"0123456789abcdef").verify(token, 0) == CLAIMS


def test_every_other_token_is_refused() -> None:
    token = SIGNER.sign(CLAIMS)
    assert TokenSigner(b"another secret!!").verify(token, 0) is None
    for at in range(len(token)):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        assert SIGNER.verify(changed, 0) is None
    for other in ("", ".", "slate1..", token + "x", token[:-1], "é" * 20, "x" * 10_000):
        assert SIGNER.verify(other, 0) is None


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="16 bytes"):
        TokenSigner(b"short")
