"""What the AWS SDKs raise and the services answer when credentials that were good once are renewed too late.

Rule: the source of the credentials renews them, so it is waited for, as for a server that is down. Nothing was applied:
the service refused the request, or it was never sent.
"""

from __future__ import annotations

EXPIRED_CODES = frozenset({"ExpiredTokenException", "ExpiredToken", "RequestExpired"})
_NOT_RENEWED = (
    "CredentialRetrievalError",
    "MetadataRetrievalError",
    "TokenRetrievalError",
    "SSOTokenLoadError",
    "UnauthorizedSSOTokenError",
)
_STILL_EXPIRED = "refreshed credentials are still expired"
"""What botocore says in a bare `RuntimeError`."""


def is_expired(code: str, message: str) -> bool:
    """Whether a service's answer says that the credentials, or a signature made with them, have expired."""
    return code in EXPIRED_CODES or (code == "InvalidSignatureException" and "expired" in message.lower())


def is_failed_refresh(error: BaseException) -> bool:
    """Whether the SDK says that it could not renew the credentials. Any other `RuntimeError` is a bug."""
    if isinstance(error, RuntimeError):
        return _STILL_EXPIRED in str(error)
    return type(error).__name__ in _NOT_RENEWED
