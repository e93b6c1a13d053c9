"""URLs of stores: what they may say, and how they are shown.

A URL names a place and how to reach it, never a user: credentials come from the standard environment and profiles.
Whatever looks like a secret is refused, and nothing of a refused value is repeated in the error. Pure, except that a
scheme which is not built in is looked up among the installed packages (`slate_async.objectstore.installed`).

=======================  ===================================================================================
URL                      place
=======================  ===================================================================================
``memory://name``        this process's memory; the same name is the same store
``file:///path``, path   a local folder; ``file:/path``, too
``s3://bucket/prefix``   S3; parameters ``endpoint_url``, ``region``, ``client`` (``obstore``, ``aiobotocore``)
``az://container/...``   Azure Blob Storage; parameter ``endpoint_url``
``gs://bucket/prefix``   Google Cloud Storage; parameter ``endpoint_url``
``scheme://place/...``   what an installed package brings; it says which parameters there are
=======================  ===================================================================================
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from slate_async.errors import ConfigError
from slate_async.objectstore.http_errors import SET_CREDENTIALS
from slate_async.objectstore.installed import installed_schemes
from slate_async.objectstore.keys import check_key

_PARAMETERS: dict[str, tuple[str, ...]] = {
    "memory": (),
    "file": (),
    "s3": ("endpoint_url", "region", "client"),
    "az": ("endpoint_url",),
    "gs": ("endpoint_url",),
}
CLIENTS = ("obstore", "aiobotocore")
_SECRET_WORDS = ("secret", "token", "sas", "key", "sig", "password", "passwd", "pwd", "credential", "auth", "user")
_OTHER_SCHEMES = {
    "gcs": "gs",
    "azure": "az",
    "abfs": "az",
    "abfss": "az",
    "wasb": "az",
    "wasbs": "az",
    "s3a": "s3",
    "s3n": "s3",
    "mem": "memory",
}
"""What other programs call the stores known here, for a hint."""
_EXAMPLES = {"memory": "memory://scratch", "s3": "s3://bucket/db", "az": "az://container/db", "gs": "gs://bucket/db"}
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z_-]{0,31}\Z")
_PLAIN_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,15}\Z")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:,-]*\Z")
"""What follows a scheme that is not built in: a name, or hosts with their ports."""
_REGION = re.compile(r"[a-z0-9-]+\Z")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class StoreURL:
    """A parsed URL. ``bucket`` is the bucket, container or memory name, or the absolute path of a local folder;
    ``prefix`` the folder inside it, without slashes at its ends; ``parameters`` those of a scheme that is not built in,
    by name."""

    scheme: str
    bucket: str
    prefix: str = ""
    endpoint_url: str | None = None
    region: str | None = None
    client: str = "obstore"
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def display(self) -> str:
        """The place alone: no parameters, no secrets."""
        if self.scheme == "file":
            return f"file://{quote(self.bucket)}"
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    def __str__(self) -> str:
        return self.display


def parse_url(url: str | os.PathLike[str]) -> StoreURL:
    """What a URL or a path names. Raises `InvalidError`, without repeating what may be a secret."""
    if not isinstance(url, str):
        return _local(os.fspath(url))
    scheme, separator, _ = url.partition("://")
    if not separator:
        found = _SCHEME.match(url)
        if url.startswith("file:/"):
            return parse_url("file://" + url.removeprefix("file:"))
        if found is not None and _is_known(found[1].lower()):
            raise ConfigError(f"a store URL begins with {found[1]}://")
        return _local(url)
    if not _is_known(scheme):
        raise _unknown(scheme)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(f"this {scheme}:// URL cannot be read") from None
    if "@" in parts.netloc:
        raise ConfigError(f"a store URL must not hold credentials; {_where_secrets_belong(scheme)}")
    if parts.fragment:
        raise ConfigError("a store URL has no fragment ('#...')")
    parameters = _parameters(scheme, parts.query)
    if scheme == "file":
        if parts.netloc == "~" or parts.path.startswith("/~/"):
            raise ConfigError("file:// URLs know no '~'; give the folder as a path (~/...) or whole (file:///home/...)")
        if parts.netloc not in ("", "localhost"):
            raise ConfigError("file:// URLs name a folder of this machine, with three slashes: file:///path")
        return _local(unquote(parts.path))
    if scheme not in _PARAMETERS:
        if not _PLACE.match(parts.netloc):
            raise ConfigError(f"{scheme}:// must be followed by a name, or by hosts with their ports")
        return StoreURL(scheme, parts.netloc, _prefix(parts.path), parameters=tuple(sorted(parameters.items())))
    if not _BUCKET.match(parts.netloc):
        raise ConfigError(
            f"{scheme}:// must be followed by a name of letters, digits, '.', '_' and '-', as in {_EXAMPLES[scheme]}"
        )
    return StoreURL(
        scheme,
        parts.netloc,
        _prefix(parts.path),
        parameters.get("endpoint_url"),
        parameters.get("region"),
        parameters.get("client", "obstore"),
    )


def _is_known(scheme: str) -> bool:
    return scheme in _PARAMETERS or scheme in installed_schemes()


def _prefix(path: str) -> str:
    prefix = path.strip("/")
    if prefix:
        check_key(prefix)
    return prefix


def _unknown(scheme: str) -> ConfigError:
    """Repeats the scheme only if it looks like one: in front of ``://`` there may be a secret."""
    shown = repr(scheme) if _PLAIN_SCHEME.match(scheme) else "this one"
    lower = scheme.lower()
    meant = lower if _is_known(lower) else _OTHER_SCHEMES.get(lower)
    hint = "" if meant is None else f"; {meant}:// is what you want"
    *schemes, last = (f"{known}://" for known in (*_PARAMETERS, *installed_schemes()))
    return ConfigError(f"store URLs begin with {', '.join(schemes)} or {last}, not with {shown}{hint}")


def _local(path: str) -> StoreURL:
    if not path:
        raise ConfigError("the path of a local store must not be empty")
    if "\0" in path:
        raise ConfigError("the path of a local store must not hold a NUL character")
    return StoreURL("file", os.path.abspath(os.path.expanduser(path)))


def _parameters(scheme: str, query: str) -> dict[str, str]:
    """The URL's parameters, none twice, none a secret; of a scheme that is built in all known."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if any(word in re.sub("[^a-z]", "", name.lower()) for word in _SECRET_WORDS):
            raise ConfigError(f"a store URL must not hold credentials; {_where_secrets_belong(scheme)}")
        shown = name if _PLAIN_NAME.match(name) else "(not a name)"
        if scheme not in _PARAMETERS and shown != name:
            raise ConfigError(f"a parameter in a {scheme}:// URL has a name of letters, '_' and '-'")
        if scheme in _PARAMETERS and name not in _PARAMETERS[scheme]:
            known = ", ".join(_PARAMETERS[scheme]) or "none"
            raise ConfigError(f"unknown parameter {shown} in a {scheme}:// URL; known: {known}")
        if name in found or not value:
            raise ConfigError(f"parameter {shown} must be given once, with a value")
        found[name] = value
    if scheme not in _PARAMETERS:
        return found
    if "endpoint_url" in found:
        check_endpoint(found["endpoint_url"], "parameter endpoint_url")
    if "region" in found and not _REGION.match(found["region"]):
        raise ConfigError("parameter region must consist of lower-case letters, digits and '-'")
    if "client" in found and found["client"] not in CLIENTS:
        raise ConfigError(f"parameter client must be one of {', '.join(CLIENTS)}")
    return found


def check_endpoint(endpoint: str, named: str) -> None:
    """Raise `ConfigError` unless an endpoint is ``http(s)://host[:port][/path]`` and nothing more. ``named``: what
    names it."""
    try:
        parts = urlsplit(endpoint)
        readable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        readable = False
    if not readable:
        raise ConfigError(f"{named} must be an http:// or https:// URL")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(f"{named} must not hold credentials, a query or a fragment")


def _where_secrets_belong(scheme: str) -> str:
    none = "this kind of store needs none" if scheme in _PARAMETERS else "the package that brings it says where they go"
    return SET_CREDENTIALS.get(scheme, none)
