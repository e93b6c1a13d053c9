"""The four kinds of database, on memory and on a folder."""

from tests.support.databases import clock, db, kind, memory, store

__all__ = ["clock", "db", "kind", "memory", "store"]
