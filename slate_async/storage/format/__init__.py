"""Byte formats: pure functions between bytes and columns. No asyncio, no I/O. Specified in ``docs/format``."""
