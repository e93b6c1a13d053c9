"""Bytes of persistent collections: batches, versions of the merged area, holds, lives. Pure functions; no I/O."""
