"""The sites that cloning, detaching and destroying work on, made of the place of an open part."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from slate_async.engine.clone.site import OpenSite, Site, open_site
from slate_async.engine.context import DatabaseContext
from slate_async.runtime.supervisor import Supervisor


def sites_of(context: DatabaseContext, supervisor: Supervisor) -> OpenSite:
    """Opens the database of ``context``, or another one at its path, whose metadata is kept in the same metastore."""

    def open_at(path: str) -> AbstractAsyncContextManager[Site]:
        own = path == context.name
        name = path if own else context.parents.name_of(path)
        store = context.store if own else context.parents.folder(path)
        return open_site(name, store, context.metadata, supervisor, context.runtime, context.settings)

    return open_at
