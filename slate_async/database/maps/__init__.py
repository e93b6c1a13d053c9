"""Typed maps: rows whose keys are tuples and whose values are objects."""
