"""The conformance suites every metastore backend must pass, shipped so that other backends can run them.

Subclass `RegisterSuite` or `MetaStoreSuite`, give it the factory method it asks for, and let pytest collect the
subclass (its tests are coroutines: pytest-asyncio's auto mode or a marker runs them). `FaultyObjects` loses, delays
and repeats requests to the object store below.
"""

from metastores.testing.faults import Faults, FaultyObjects, LostError, MemoryObjects
from metastores.testing.metastore_suite import MetaStoreSuite
from metastores.testing.register_suite import RegisterSuite

__all__ = ["Faults", "FaultyObjects", "LostError", "MemoryObjects", "MetaStoreSuite", "RegisterSuite"]
