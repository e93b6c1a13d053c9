"""What is stored, and its bytes: formats, manifest, log, SSTs, memtables. Nothing here knows a role."""
