"""Verification of collections: all that is needed is read once, beside those who write, read and compact it."""
