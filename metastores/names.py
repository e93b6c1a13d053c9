"""Names of everything a metastore keeps, and the way back from a name to what it names.

::

    manifest/{version:020}.manifest      a version by put-if-absent
    manifest/boundary/{version:020}      deletion boundary: versions below it may be deleted
    manifest/{version:020}.{token}       a body, committed once a head names it
    manifest/current                     the head of those bodies, as an object
    manifest/dynamodb                    note: the DynamoDB table and region with the head
    writer/current                       the writer's register, as an object

Invariant: parsing accepts exactly what formatting yields, so a foreign key is never taken for one of ours.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import urlsplit

from metastores.errors import MetaStoreInvalidError
from metastores.protocol import VersionRef

FOLDER = "manifest/"
BOUNDARY_FOLDER = "manifest/boundary/"
CURRENT = "manifest/current"
ELSEWHERE = "manifest/dynamodb"
WRITER = "writer/current"
MAX_VERSION = 10**19
MAX_NAME_BYTES = 1024

_TOKEN = re.compile(r"[0-9a-f]{32}\Z")
_MANIFEST = re.compile(r"manifest/([0-9]{20})\.manifest\Z")
_BOUNDARY = re.compile(r"manifest/boundary/([0-9]{20})\Z")
_BODY = re.compile(r"manifest/([0-9]{20})\.([0-9a-f]{32})\Z")


def check_ref(ref: VersionRef) -> None:
    """Raise `MetaStoreInvalidError` unless ``ref`` is a version from 1 and a token of 32 lower-case hex digits."""
    if not 1 <= ref.version < MAX_VERSION:
        raise MetaStoreInvalidError(f"version {ref.version} is out of range; versions are numbered from 1")
    if not _TOKEN.match(ref.token):
        raise MetaStoreInvalidError(f"token of version {ref.version} is not 32 lower-case hex digits")


def manifest_key(version: int) -> str:
    """Key of a version kept by put-if-absent."""
    return f"manifest/{version:020}.manifest"


def manifest_version(key: str) -> int | None:
    """The version such a key names, or ``None``."""
    match = _MANIFEST.match(key)
    return int(match.group(1)) if match else None


def boundary_key(version: int) -> str:
    """Key of the marker that raises the deletion boundary to ``version``."""
    return f"{BOUNDARY_FOLDER}{version:020}"


def boundary_version(key: str) -> int | None:
    """The boundary such a key stands for, or ``None``."""
    match = _BOUNDARY.match(key)
    return int(match.group(1)) if match else None


def body_key(ref: VersionRef) -> str:
    """Key of a body: number and token, so that bodies of losing attempts have other names."""
    return f"manifest/{ref.version:020}.{ref.token}"


def body_ref(key: str) -> VersionRef | None:
    """The body such a key names, or ``None``."""
    match = _BODY.match(key)
    return VersionRef(int(match.group(1)), match.group(2)) if match else None


def database_name(name: str) -> str:
    """``name`` (a database's URL) in the one form it is filed under: scheme in lower case, no query, no fragment,
    no trailing slash; one longer than 1,024 bytes ends in a SHA-256 of the whole. Credentials are refused."""
    if not name or any(ord(letter) < 32 for letter in name):
        raise MetaStoreInvalidError("the database's name is empty or holds control characters")
    if "://" in name:
        parts = urlsplit(name)
        if "@" in parts.netloc:
            raise MetaStoreInvalidError("the database's URL holds credentials; take them from the environment instead")
        name = f"{parts.scheme.lower()}://{parts.netloc}{parts.path}"
    name = name.rstrip("/") or "/"
    data = name.encode()
    if len(data) <= MAX_NAME_BYTES:
        return name
    digest = hashlib.sha256(data).hexdigest()
    head = data[: MAX_NAME_BYTES - len(digest) - 1].decode(errors="ignore")
    return f"{head}#{digest}"
