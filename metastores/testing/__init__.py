"""The conformance suites every metastore backend must pass, shipped so that other backends can run them.

Subclass `RegisterSuite` or `MetaStoreSuite`, give it the factory method it asks for, and let pytest collect the
subclass (its tests are coroutines: pytest-asyncio's auto mode or a marker runs them). A backend that puts several
requests behind one call also says how to reach between them (`MetaStoreSuite.make_wired_metastores`,
`RegisterSuite.make_wired_registers`): a `Wire` then loses, delays and repeats them. `WiredObjects` is such a way
for whatever is kept in an object store.
"""

from metastores.testing.memory_objects import MemoryObjects
from metastores.testing.metastore_suite import MetaStoreSuite
from metastores.testing.register_suite import RegisterSuite
from metastores.testing.wire import Fate, Faults, LostError, Wire, WiredMetaStore, WiredObjects, WiredRegister

__all__ = [
    "Fate",
    "Faults",
    "LostError",
    "MemoryObjects",
    "MetaStoreSuite",
    "RegisterSuite",
    "Wire",
    "WiredMetaStore",
    "WiredObjects",
    "WiredRegister",
]
