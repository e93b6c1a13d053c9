"""Removes what may be a credential from the texts of SDKs, and stands in for their exceptions.

One home for metastores and object stores. Rule: no text of an SDK reaches a message before `redacted` has seen it,
and no exception of an SDK is chained (a traceback prints it whole, and a service's answer may quote the signed
request, session token included): an `SdkError` takes its place as the cause, and is raised outside the ``except``
block that met the original.
"""

from __future__ import annotations

import re

MAX_DETAIL_CHARS = 300

_URL_USER = re.compile(r"(\w+://)[^\s/@\"']+@")
_URL_QUERY = re.compile(r"(\w+://[^\s?\"'<>()]*)\?[^\s\"'<>()]*")
_NAMED_SECRET = re.compile(
    r"(?i)\b([\w-]*(?:signature|sig|token|secret|password|credential|accesskeyid|access_key|account_?key|authorization)"
    r"[\w-]*[\"']?\s*(?:[=:>]\s*)+)[\"']?(?:(?:bearer|basic|sharedkey|aws4-hmac-sha256)\s+)?[^\s\"'<>,;&]+"
)
_KEY_ID = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")
_LONG_SECRET = re.compile(r"(?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z])(?=[A-Za-z+/]*[0-9])[A-Za-z0-9+/]{40,}={0,2}")


class SdkError(Exception):
    """Stands for an SDK's exception as a cause: its type and its text without credentials."""


def redacted(text: str) -> str:
    """``text`` in one line, at most `MAX_DETAIL_CHARS`, without anything that may be a credential."""
    for pattern, instead in (
        (_URL_USER, r"\1"),
        (_URL_QUERY, r"\1"),
        (_NAMED_SECRET, r"\1***"),
        (_KEY_ID, "***"),
        (_LONG_SECRET, "***"),
    ):
        text = pattern.sub(instead, text)
    return " ".join(text.split())[:MAX_DETAIL_CHARS]


def sdk_error(error: BaseException, detail: str | None = None) -> SdkError:
    """The cause to chain in place of ``error``, saying ``detail`` (``None``: what the error itself says)."""
    return SdkError(f"{type(error).__name__}: {redacted(str(error) if detail is None else detail)}")
