"""Names of everything a metastore keeps, and the way back from a name to what it names.

A `Layout` says in which folder one product keeps its versions, and how it names them. The engine's `MANIFEST`::

    manifest/{version:020}.manifest      a version by put-if-absent
    manifest/boundary/{version:020}      deletion boundary: versions below it may be deleted
    manifest/{version:020}.{token}       a body, committed once a head names it
    manifest/current                     the head of those bodies, as an object
    manifest/elsewhere                   note: the DynamoDB table or the etcd with the head
    writer/current                       the writer's register, as an object

The versions of a collection's merged area, `MERGED_AREAS`, in the folder of one life of the collection::

    merged_areas/v{version:020}
    merged_areas/v_boundary/{version:020}
    merged_areas/v{version:020}.{token}
    merged_areas/current
    merged_areas/elsewhere

The heads of a table, `TABLE_HEADS`, in the table's folder, and the versions of a catalog of tables, `CATALOGS`::

    manifest/{version:020}.head
    catalog/{version:020}

Invariants: parsing accepts exactly what formatting yields, so a foreign key is never taken for one of ours. In byte
order boundaries follow all versions, so that one listing reads the versions first and then the boundary.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from metastores.errors import MetaStoreInvalidError
from metastores.protocol import VersionRef

WRITER = "writer/current"
MAX_VERSION = 10**19
MAX_NAME_BYTES = 1024

_TOKEN = re.compile(r"[0-9a-f]{32}\Z")
_VERSION = re.compile(r"[0-9]{20}\Z")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where versions lie in a folder, and what they are called.

    what: what a version is a version of, as messages say it
    owner: what has these versions, as messages say it
    folder: where all of it lies; ends in a slash
    before, after: what a version's name has around its 20 digits; a body has its token in the place of ``after``
    boundary: the folder below ``folder`` of the deletion boundary; it sorts after every version
    """

    what: str
    owner: str
    folder: str
    before: str = ""
    after: str = ""
    boundary: str = "boundary/"

    def __post_init__(self) -> None:
        folders = (self.folder, self.boundary)
        if not all(folder.endswith("/") for folder in folders) or self.boundary <= self.before + "9" * 20:
            raise MetaStoreInvalidError(
                f"{self} is no layout: folders end in a slash, and boundaries sort after every version"
            )

    @property
    def boundary_folder(self) -> str:
        """What keys of the boundary begin with."""
        return self.folder + self.boundary

    @property
    def current(self) -> str:
        """Key of the head of bodies, as an object."""
        return f"{self.folder}current"

    @property
    def elsewhere(self) -> str:
        """Key of the note that says where the head is, if that is no object."""
        return f"{self.folder}elsewhere"

    def version_key(self, version: int) -> str:
        """Key of a version kept by put-if-absent."""
        return f"{self.folder}{self.before}{version:020}{self.after}"

    def version_of(self, key: str) -> int | None:
        """The version such a key names, or ``None``."""
        return _number(key, self.folder + self.before, self.after)

    def boundary_key(self, version: int) -> str:
        """Key of the marker that raises the deletion boundary to ``version``."""
        return f"{self.boundary_folder}{version:020}"

    def boundary_of(self, key: str) -> int | None:
        """The boundary such a key stands for, or ``None``."""
        return _number(key, self.boundary_folder, "")

    def body_key(self, ref: VersionRef) -> str:
        """Key of a body: number and token, so that bodies of losing attempts have other names."""
        return f"{self.folder}{self.before}{ref.version:020}.{ref.token}"

    def body_ref(self, key: str) -> VersionRef | None:
        """The body such a key names, or ``None``."""
        token = key[-32:]
        version = _number(key, self.folder + self.before, f".{token}") if _TOKEN.match(token) else None
        return None if version is None else VersionRef(version, token)

    def is_of_bodies(self, key: str) -> bool:
        """Whether ``key`` says that the versions are bodies, whose head is in another metastore."""
        return key in (self.current, self.elsewhere) or self.body_ref(key) is not None

    def gives(self, key: str) -> bool:
        """Whether any metastore gives ``key``; others are foreign."""
        by_version = self.version_of(key) is not None or self.boundary_of(key) is not None
        return by_version or self.is_of_bodies(key)


MANIFEST = Layout("manifest", "database", "manifest/", after=".manifest")
"""Versions of a database's manifest."""
MERGED_AREAS = Layout("merged area", "collection", "merged_areas/", before="v", boundary="v_boundary/")
"""Versions of a collection's merged area."""
TABLE_HEADS = Layout("head", "table", "manifest/", after=".head")
"""Versions of a table."""
CATALOGS = Layout("catalog", "catalog of tables", "catalog/")
"""Versions of a catalog of tables."""


def _number(key: str, before: str, after: str) -> int | None:
    """The 20 digits that ``key`` has between the two, and nothing else."""
    if not (key.startswith(before) and key.endswith(after)):
        return None
    digits = key[len(before) : len(key) - len(after)]
    return int(digits) if _VERSION.match(digits) else None


def check_ref(ref: VersionRef) -> None:
    """Raise `MetaStoreInvalidError` unless ``ref`` is a version from 1 and a token of 32 lower-case hex digits."""
    if not 1 <= ref.version < MAX_VERSION:
        raise MetaStoreInvalidError(f"version {ref.version} is out of range; versions are numbered from 1")
    if not _TOKEN.match(ref.token):
        raise MetaStoreInvalidError(f"token of version {ref.version} is not 32 lower-case hex digits")


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
