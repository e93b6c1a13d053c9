"""The deletion boundary of a manifest kept by put-if-absent. Without it a committer that slept could commit in the
place of a deleted version, and take that for a success."""

from __future__ import annotations

from metastores.names import MANIFEST
from slate_async.objectstore.protocol import ObjectStore
from slate_async.types import Finding


async def lost_boundary(store: ObjectStore) -> list[Finding]:
    """Whether versions were deleted and no boundary is above them. Boundaries are listed after versions, and raised
    before a version goes; so one that is missing here is lost."""
    versions: list[int] = []
    boundary = 0
    async for info in store.list(MANIFEST.folder):
        if (version := MANIFEST.version_of(info.key)) is not None:
            versions.append(version)
        elif (raised := MANIFEST.boundary_of(info.key)) is not None:
            boundary = max(boundary, raised)
    listed = set(versions)
    highest = max(listed, default=0)
    deleted = next((version for version in range(highest - 1, 0, -1) if version not in listed), 0)
    if deleted < boundary or not deleted:
        return []
    said = "no deletion boundary is there" if not boundary else f"the deletion boundary is {boundary}"
    return [Finding(MANIFEST.boundary_folder, None, f"version {deleted} was deleted, but {said}: a marker was lost")]
