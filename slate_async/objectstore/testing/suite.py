"""The whole suite in one class."""

from __future__ import annotations

from slate_async.objectstore.testing.listing import ListingTests
from slate_async.objectstore.testing.objects import ObjectTests
from slate_async.objectstore.testing.races import RaceTests


class ObjectStoreConformance(ObjectTests, ListingTests, RaceTests):
    """Subclass it, define `make_store`, name the class ``Test...``. The attributes of `ConformanceBase` tune it."""
