"""Bytes that every product shares: object headers, checksums, compression, columns. Pure functions; no I/O."""
