"""Mirrors: a checkpoint of a database copied to another store, incrementally, so that a database lies there, too."""
