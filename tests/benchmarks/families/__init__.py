"""The families, by name. Each is a module with a ``FAMILY``."""
