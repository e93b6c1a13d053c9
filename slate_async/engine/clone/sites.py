"""The sites that cloning, detaching and destroying work on, made of the place of an open part."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from slate_async.engine.clone.site import OpenSite, Site, open_site
from slate_async.engine.context import Place
from slate_async.runtime.supervisor import Supervisor


def sites_of(place: Place, supervisor: Supervisor) -> OpenSite:
    """Opens the database at ``place``, or another one at its path, whose metadata is kept in the same metastore."""

    def open_at(path: str) -> AbstractAsyncContextManager[Site]:
        own = path == place.name
        name = path if own else place.parents.name_of(path)
        store = place.store if own else place.parents.folder(path)
        return open_site(name, store, place.metadata, supervisor, place.runtime, place.settings)

    return open_at
