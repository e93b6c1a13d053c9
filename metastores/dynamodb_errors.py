"""What an error of the SDK means for the request that met it.

Rules: only what the SDK, the network or a timeout raised is a failure (`sdk_failures`); anything else is a bug and
passes through. A `MetaStoreError` says that a write certainly was not applied. Texts are redacted: an answer may
quote the signed request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from metastores.aws_credentials import is_expired, is_failed_refresh
from metastores.errors import MetaStoreError, MetaStoreInvalidError, MetaStoreNotFoundError, MetaStoreUnavailableError
from metastores.object_store_errors import OutcomeUnknownError
from metastores.redaction import redacted

THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
    }
)
"""Answers that say the write was not applied, for the load on the table, and may be sent again."""
WRITE_CONFLICT = "ReplicatedWriteConflictException"
"""A write of another region at the same time: not applied, and may be sent again."""
SET_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_CREDENTIALS = re.compile(r"Signature|Token|UnrecognizedClient|AccessKeyId|AuthFailure|AccessDenied|NotAuthorized")
_XML_CODE = re.compile(r"<Code>([^<]*)</Code>")
_XML_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_MISCONFIGURED = ("PartialCredentialsError", "NoRegionError", "ParamValidationError")


class ConditionFailedError(Exception):
    """The condition of a write does not hold; nothing was written. Never leaves this package."""


class ThrottledError(MetaStoreUnavailableError):
    """Refused for the load on the table."""


class WriteConflictError(MetaStoreUnavailableError):
    """Refused for a concurrent write in another region, and not judged."""


class RequestRefusedError(MetaStoreInvalidError):
    """Refused for what the request asks. ``code`` is the service's."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def package_missing() -> MetaStoreInvalidError:
    """The error when the SDK is not installed."""
    return MetaStoreInvalidError(
        "metastore 'dynamodb://' needs the package aioboto3: pip install 'slate-async[dynamodb]'"
    )


def sdk_failures() -> tuple[type[Exception], ...]:
    """What a request may raise for reasons that are not a bug. Raises `MetaStoreInvalidError` without the SDK."""
    try:
        from aiohttp import ClientError as HttpError  # noqa: PLC0415 - optional package
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - optional package
        from botocore.parsers import ResponseParserError  # noqa: PLC0415 - optional package
    except ImportError as error:
        raise package_missing() from error
    return BotoCoreError, ClientError, ResponseParserError, HttpError, OSError


def translate(error: Exception, table: str) -> MetaStoreError | OutcomeUnknownError | ConditionFailedError:
    """What one of `sdk_failures` means; to be raised outside the ``except`` block that met it."""
    response = getattr(error, "response", None)
    if not isinstance(response, Mapping):
        return _without_answer(error, table)
    code, message = _said(response)
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
    if code == "ConditionalCheckFailedException":
        return ConditionFailedError(f"DynamoDB table {table}: {code}")
    if code in THROTTLED:
        return ThrottledError(f"DynamoDB table {table} is throttled: {code}")
    if code == WRITE_CONFLICT:
        return WriteConflictError(f"DynamoDB table {table}: another region wrote the item concurrently: {code}")
    if is_expired(code, message):
        return MetaStoreUnavailableError(f"DynamoDB table {table}: the credentials have expired: {code}")
    if code == "ResourceNotFoundException":
        return MetaStoreNotFoundError(
            f"there is no DynamoDB table {table!r}: create it with `slate admin create-table` or"
            " DynamoDBMetaStore.create_table"
        )
    if 400 <= status < 500:
        return RequestRefusedError(f"DynamoDB table {table} {_refusal(status, code, message)}", code)
    return OutcomeUnknownError(f"DynamoDB table {table} answered {status} {code}")


def _said(response: Mapping[str, Any]) -> tuple[str, str]:
    """Code and message of an answer. One in XML is not DynamoDB's own, but a gateway's or an emulator's: the SDK gives
    its status as the code and its whole body as the message."""
    error = response.get("Error", {})
    code, message = str(error.get("Code", "")), str(error.get("Message", ""))
    if message.lstrip().startswith("<"):
        inner, text = _XML_CODE.search(message), _XML_MESSAGE.search(message)
        code, message = inner[1] if inner else code, text[1] if text else ""
    return redacted(code), message


def _refusal(status: int, code: str, message: str) -> str:
    """What a refusal says, and the way out. What is said of a signature or a token may quote it, and is left out."""
    quotes = "Signature" in code or "Token" in code
    said = f"refused the request: {code}" + ("" if quotes or not message else f": {redacted(message)}")
    if status in (401, 403) or _CREDENTIALS.search(code):
        return f"{said}; check the credentials and what they are allowed"
    return said


def _without_answer(error: Exception, table: str) -> MetaStoreError | OutcomeUnknownError:
    kind = type(error).__name__
    what = f"DynamoDB table {table}: {kind}: {redacted(str(error))}"
    if kind == "NoCredentialsError":
        return MetaStoreInvalidError(f"no credentials found for DynamoDB table {table}; {SET_CREDENTIALS}")
    if kind in _MISCONFIGURED:
        return MetaStoreInvalidError(what)
    if is_failed_refresh(error):
        return MetaStoreUnavailableError(f"{what}; the credentials could not be renewed")
    below = type(getattr(error, "kwargs", {}).get("error")).__name__
    if kind == "ConnectTimeoutError" or (kind == "EndpointConnectionError" and below.startswith("ClientConnector")):
        return MetaStoreUnavailableError(what)
    return OutcomeUnknownError(what)
