"""The four kinds of database, on memory and on a folder."""

from tests.support.databases import kind, store

__all__ = ["kind", "store"]
