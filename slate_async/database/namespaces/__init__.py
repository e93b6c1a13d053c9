"""Namespaces: parts of a database that look like one, each the keys below a prefix of its own."""
