"""Required features of databases that processes ask for by name. A process that lacks one refuses the database."""

from __future__ import annotations

MARKER_FEATURE = "marker"
"""Of a database whose metadata is kept elsewhere than its objects: a marker proves the place."""
MERGE_FEATURE = "merge"
"""Of a database that has a merge operator: others would take operands for broken rows."""
RANGE_DELETES_FEATURE = "range_deletes"
"""Of a database that may hold range deletes: others would show what they hide."""
LEASE_FEATURE = "ingest_leases"
"""Of a database that has had a pending ingest with a lease: others would apply it at any time."""
