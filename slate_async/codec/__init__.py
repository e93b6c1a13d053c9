"""Bytes that every product shares: object headers, checksums, compression, columns, records. Pure functions; no I/O."""
