"""Metadata stores: a compare-and-set register and a versioned sequence, over several backends.

What a metastore of another package implements, builds on and raises is exported here; `metastores.protocol` has the
contract.
"""

from metastores.bodies import BodyStore, ObjectBodies
from metastores.chained_register import check_size
from metastores.dynamodb import DynamoDBMetaStore
from metastores.errors import (
    MetaStoreCorruptionError,
    MetaStoreError,
    MetaStoreInvalidError,
    MetaStoreNotFoundError,
    MetaStoreUnavailableError,
)
from metastores.names import MANIFEST, Layout
from metastores.protocol import (
    CasOutcome,
    Cell,
    CommitOutcome,
    Committed,
    ConditionalObjects,
    Conflict,
    ErasesMetadata,
    ListedObject,
    MetaStore,
    MetaStoreFactory,
    Needs,
    Probed,
    Record,
    Register,
    StoredObject,
    Unknown,
    VersionRef,
)
from metastores.register_store import RegisterMetaStore
from metastores.runtime import MetaRuntime
from metastores.stats import Counted, MetaStats

__all__ = [
    "MANIFEST",
    "BodyStore",
    "CasOutcome",
    "Cell",
    "CommitOutcome",
    "Committed",
    "ConditionalObjects",
    "Conflict",
    "Counted",
    "DynamoDBMetaStore",
    "ErasesMetadata",
    "Layout",
    "ListedObject",
    "MetaRuntime",
    "MetaStats",
    "MetaStore",
    "MetaStoreCorruptionError",
    "MetaStoreError",
    "MetaStoreFactory",
    "MetaStoreInvalidError",
    "MetaStoreNotFoundError",
    "MetaStoreUnavailableError",
    "Needs",
    "ObjectBodies",
    "Probed",
    "Record",
    "Register",
    "RegisterMetaStore",
    "StoredObject",
    "Unknown",
    "VersionRef",
    "check_size",
]
