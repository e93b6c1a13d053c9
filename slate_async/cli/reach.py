"""Whether a server listens at the endpoint that a URL or the environment names. A command reports a store that is not
there within seconds, with the cause; the engine would retry for as long as a restart takes."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterable
from urllib.parse import parse_qs, urlsplit

from slate_async.errors import InvalidError, UnavailableError
from slate_async.objectstore.url import parse_url

REFUSED_S = 3.0
PAUSE_S = 0.25
VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "dynamodb": ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"),
}
NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")
"""What OpenSSL calls an answer to its greeting that is none."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def endpoints_of(path: str | None, metastore: str | None) -> list[str]:
    """The endpoints that are named, of the store and of the metastore. What cannot be read is somebody else's to
    refuse."""
    named: list[str | None] = []
    if path:
        try:
            place = parse_url(path)
        except InvalidError:
            return []
        named.append(place.endpoint_url or _from_environment(place.scheme))
    if metastore is not None and metastore.startswith("dynamodb://"):
        given = parse_qs(urlsplit(metastore).query).get("endpoint_url")
        named.append(given[0] if given else _from_environment("dynamodb"))
    return [endpoint for endpoint in named if endpoint]


async def check_reachable(endpoints: Iterable[str]) -> None:
    """Raise `UnavailableError` for the first one whose host is not known, that refuses connections for `REFUSED_S`, or
    that is named with https and does not speak TLS. One that is silent may be slow, and one behind a proxy is the
    proxy's to reach."""
    if any(os.environ.get(name) or os.environ.get(name.upper()) for name in PROXIES):
        return
    for endpoint in dict.fromkeys(endpoints):
        parts = urlsplit(endpoint)
        if parts.hostname is None:
            continue
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            continue
        await _listens(endpoint, parts.hostname, port, _handshake() if parts.scheme == "https" else None)


def _handshake() -> ssl.SSLContext:
    """Whose certificate it is, and whether it is trusted, the store's client judges: it has the certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _listens(endpoint: str, host: str, port: int, handshake: ssl.SSLContext | None) -> None:
    refusal: OSError | None = None
    try:
        async with asyncio.timeout(REFUSED_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection(host, port, ssl=handshake)
                except ssl.SSLError as error:
                    if error.reason not in NOT_TLS:
                        return  # it speaks TLS, and the store's client has more to say
                    why = "it does not speak TLS; if it is a server of plain http, say http:// instead of https://"
                    raise UnavailableError(f"no answer from {endpoint}: {why}") from error
                except OSError as error:
                    refusal = error
                else:
                    writer.close()
                    return
                await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        if refusal is not None:
            why = refusal.strerror or str(refusal) or "the connection was closed"
            if isinstance(refusal, ConnectionRefusedError):
                why = "connection refused"
            raise UnavailableError(f"no answer from {endpoint}: {why}") from refusal


def _from_environment(scheme: str) -> str | None:
    return next((os.environ[name] for name in VARIABLES.get(scheme, ()) if os.environ.get(name)), None)
