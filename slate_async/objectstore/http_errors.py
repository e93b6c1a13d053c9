"""What a store's answer means to the caller: one table for all HTTP stores, in words without credentials.

Pure: status, error code and put mode in, `SlateError` out. Two rules hold for every translation. An answer from
the store is definite: what it refused was ``not_applied``, except for server errors and timeouts, which are
``unknown``. And no text of an SDK reaches a message before it was redacted (`metastores.redaction`).
"""

from __future__ import annotations

import re

from metastores.redaction import redacted
from slate_async.errors import ConfigError, InvalidError, NotFoundError, Outcome, SlateError, UnavailableError
from slate_async.objectstore.protocol import (
    Create,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PutMode,
)

SET_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or another AZURE_* credential",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS",
}
"""By scheme: where credentials are looked for."""

_MISSING_BUCKET = ("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted")
_EXISTS = ("BlobAlreadyExists", "PreconditionFailed", "ObjectAlreadyExists")
_TRY_AGAIN = (
    "RequestTimeout",
    "RequestTimeTooSkewed",
    "ExpiredToken",
    "RequestExpired",
    "SlowDown",
    "Throttling",
    "ServerBusy",
)
_URL = re.compile(r"\w+://[^\s\"'<>()]*")

_REASONS = tuple(
    (re.compile(pattern, re.IGNORECASE), words)
    for pattern, words in (
        (r"connection ?refused", "connection refused"),
        (r"temporary failure in name resolution|try again", "the host's name could not be looked up"),
        (r"dns error|lookup address|name or service not known|nodename nor servname|no address assoc", "unknown host"),
        (r"certificate|UnknownIssuer|NotValidForName", "its TLS certificate was not accepted"),
        (r"InvalidContentType|wrong.version.number|record overflow|corrupt message", "it does not speak TLS (https)"),
        (r"(network|host) ?(is )?unreachable|no route to host", "the network or host cannot be reached"),
        (r"connection ?reset|reset by peer", "the connection was reset"),
        (
            r"IncompleteMessage|before message completed|before an answer|broken ?pipe|disconnected",
            "the connection broke",
        ),
        (r"timed ?out|\btimeout\b", "timed out"),
    )
)
"""What SDKs say at the end of their chains of causes, and the words for it."""
_LAST_QUOTED = re.compile(r'(?:message|error): "([^"\\]+)"')
_SDK_PREFIX = re.compile(r"^Generic \w+ error: (?:Error performing .*? in \S+ - )?(?:HTTP error: )?")


def reason(text: str) -> str:
    """Why there was no answer, in words: the last cause that an SDK's ``text`` (its whole chain) names."""
    causes = _URL.sub("", text)  # names of hosts, buckets and keys are no causes
    for pattern, words in _REASONS:
        if pattern.search(causes):
            return words
    quoted = _LAST_QUOTED.findall(text)
    return redacted(quoted[-1] if quoted else plain(text))


def plain(text: str) -> str:
    """The first line of an SDK's text, without the names of its classes and requests."""
    return _SDK_PREFIX.sub("", text.partition("\n")[0])


def refused(
    status: int, code: str, detail: str, *, key: str, mode: PutMode | None, place: str = "the store"
) -> SlateError:
    """The error for an answer with HTTP ``status`` and the store's own ``code`` ("" if it gave none).

    ``mode`` is the mode of a put, ``None`` for every other request; ``place`` names the store."""
    said = f"{place} answered {status} {code}".rstrip() + f" for {key!r}: {redacted(detail)}"
    not_applied: Outcome | None = None if mode is None else "not_applied"
    unknown: Outcome | None = None if mode is None else "unknown"
    if status == 404:
        return _missing(code, said, key, mode)
    if status in (304, 409, 412):
        return _condition(status, code, said, key, mode)
    if status == 416:
        return InvalidError(f"{key!r} has no byte at the offset that was read")
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
    kind = ConfigError if hint else InvalidError
    return kind(said + hint, outcome=not_applied)


def _missing(code: str, said: str, key: str, mode: PutMode | None) -> SlateError:
    if code in _MISSING_BUCKET:
        outcome: Outcome | None = None if mode is None else "not_applied"
        return NotFoundError(f"{said}; create the bucket or container first", outcome=outcome)
    if mode is None:
        return ObjectNotFoundError(key)
    if isinstance(mode, Match):
        return ObjectChangedError(key)
    return NotFoundError(f"{said}; does the bucket or container exist?", outcome="not_applied")


def _condition(status: int, code: str, said: str, key: str, mode: PutMode | None) -> SlateError:
    """A condition that does not hold; or (409) another request in the way, which says nothing of the condition."""
    if mode is None:
        return UnavailableError(f"{said}; it changed while being read")
    holds_no_verdict = status == 409 and code not in _EXISTS
    if isinstance(mode, Create) and not holds_no_verdict:
        return ObjectExistsError(key)
    if isinstance(mode, Match) and not holds_no_verdict:
        return ObjectChangedError(key)
    return UnavailableError(
        f"{said}; a concurrent request for this key was in progress; try again", outcome="not_applied"
    )


def no_answer(text: str, *, key: str, mode: PutMode | None, sent: bool, place: str = "the store") -> UnavailableError:
    """The error of a request without an answer; ``text`` is all the SDK says of it, ``sent`` whether it may have
    reached the store."""
    outcome: Outcome | None = None if mode is None else ("unknown" if sent else "not_applied")
    what = f" for {key!r}" if key else ""
    return UnavailableError(f"no answer from {place}{what}: {reason(text)}", outcome=outcome)


def no_credentials(scheme: str, place: str) -> ConfigError:
    """The error of a request that could not be signed, because credentials are nowhere to be found."""
    return ConfigError(f"no credentials found for {place}; {SET_CREDENTIALS[scheme]}", outcome="not_applied")
