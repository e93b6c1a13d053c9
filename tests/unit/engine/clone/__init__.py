"""Clones, detaching, destroying."""
