"""Databases made of others, and unmade: shallow clones, their detaching, destroying."""
