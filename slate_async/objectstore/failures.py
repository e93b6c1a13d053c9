"""What a store's answer means to the caller: one table for all HTTP stores, and the redaction of what they say.

Pure: status, error code and put mode in, `SlateError` out. Two rules hold for every translation. An answer from
the store is definite: what it refused was ``not_applied``, except for server errors and timeouts, which are
``unknown``. And no text of an SDK reaches a message before `redacted` has removed what may be a credential;
so an SDK's exception is never chained either (`SdkError` takes its place as the cause).
"""

from __future__ import annotations

import re

from slate_async.errors import InvalidError, Outcome, SlateError, UnavailableError
from slate_async.objectstore.protocol import (
    Create,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PutMode,
)

MAX_DETAIL_CHARS = 300

_MISSING_BUCKET = ("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted")
_EXISTS = ("BlobAlreadyExists", "PreconditionFailed", "ObjectAlreadyExists")
_TRY_AGAIN = ("RequestTimeout", "RequestTimeTooSkewed", "ExpiredToken", "SlowDown", "Throttling", "ServerBusy")
_URL_QUERY = re.compile(r"(\w+://[^\s?\"'<>()]*)\?[^\s\"'<>()]*")
_URL_USER = re.compile(r"(\w+://)[^\s/@\"']+@")
_NAMED_SECRET = re.compile(
    r"(?i)\b([\w-]*(?:signature|sig|token|secret|password|credential|accesskeyid|access_key|account_?key|authorization)"
    r"[\w-]*[\"']?\s*(?:[=:>]\s*)+)[\"']?(?:(?:bearer|basic|sharedkey)\s+)?[^\s\"'<>,;&]+"
)
_KEY_ID = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")
_LONG_SECRET = re.compile(r"(?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z])(?=[A-Za-z+/]*[0-9])[A-Za-z0-9+/]{40,}={0,2}")


class SdkError(Exception):
    """Stands for an SDK's exception as a cause: its type and its text without credentials."""


def redacted(text: str) -> str:
    """``text`` in one line, at most `MAX_DETAIL_CHARS`, without anything that may be a credential."""
    text = _URL_USER.sub(r"\1", text)
    text = _URL_QUERY.sub(r"\1", text)
    text = _NAMED_SECRET.sub(r"\1***", text)
    text = _KEY_ID.sub("***", text)
    text = _LONG_SECRET.sub("***", text)
    return " ".join(text.split())[:MAX_DETAIL_CHARS]


def sdk_error(error: BaseException, detail: str) -> SdkError:
    """The cause to chain in place of ``error``."""
    return SdkError(f"{type(error).__name__}: {redacted(detail)}")


def refused(status: int, code: str, detail: str, *, key: str, mode: PutMode | None) -> SlateError:
    """The error for an answer with HTTP ``status`` and the store's own ``code`` ("" if it gave none).

    ``mode`` is the mode of a put, ``None`` for every other request."""
    said = f"the store answered {status} {code}".rstrip() + f" for {key!r}: {redacted(detail)}"
    not_applied: Outcome | None = None if mode is None else "not_applied"
    unknown: Outcome | None = None if mode is None else "unknown"
    if status == 404:
        return _missing(code, said, key, mode)
    if status in (304, 409, 412):
        return _condition(status, code, said, key, mode)
    if status == 416:
        return InvalidError(f"{key!r}: nothing can be read at that offset")
    if code.startswith(_TRY_AGAIN) or status == 429:
        return UnavailableError(said, outcome=not_applied)
    if status == 408 or (status >= 500 and status not in (501, 505)):
        return UnavailableError(said, outcome=unknown)
    hint = {
        301: "; name the bucket's region (?region=...)",
        307: "; name the bucket's region (?region=...)",
        401: "; check the credentials",
        403: "; check the credentials and what they are allowed",
        501: "; this store does not implement the request",
    }.get(status, "")
    return InvalidError(said + hint, outcome=not_applied)


def _missing(code: str, said: str, key: str, mode: PutMode | None) -> SlateError:
    if code in _MISSING_BUCKET:
        outcome: Outcome | None = None if mode is None else "not_applied"
        return InvalidError(f"{said}; create the bucket or container first", outcome=outcome)
    if mode is None:
        return ObjectNotFoundError(key)
    if isinstance(mode, Match):
        return ObjectChangedError(key)
    return InvalidError(f"{said}; does the bucket or container exist?", outcome="not_applied")


def _condition(status: int, code: str, said: str, key: str, mode: PutMode | None) -> SlateError:
    """A condition that does not hold; or (409) another request in the way, which says nothing of the condition."""
    if mode is None:
        return UnavailableError(f"{said}; it changed while being read")
    holds_no_verdict = status == 409 and code not in _EXISTS
    if isinstance(mode, Create) and not holds_no_verdict:
        return ObjectExistsError(key)
    if isinstance(mode, Match) and not holds_no_verdict:
        return ObjectChangedError(key)
    return UnavailableError(f"{said}; another request was in the way", outcome="not_applied")


def no_answer(detail: str, *, key: str, mode: PutMode | None, sent: bool) -> UnavailableError:
    """The error of a request without an answer; ``sent`` says whether it may have reached the store."""
    outcome: Outcome | None = None if mode is None else ("unknown" if sent else "not_applied")
    return UnavailableError(f"no answer from the store for {key!r}: {redacted(detail)}", outcome=outcome)
