"""The conformance suite every object store of this package passes, for any backend to subclass.

::

    from slate_async.objectstore.testing import ObjectStoreConformance

    class TestMyStore(ObjectStoreConformance):
        async def make_store(self):
            return MyStore(...)          # a new, empty one for every test

Needs pytest with pytest-asyncio in auto mode to run; nothing here imports either.
"""

from slate_async.objectstore.testing.suite import ObjectStoreConformance

__all__ = ["ObjectStoreConformance"]
