"""Garbage collection: what nothing names any more is deleted, and nothing else.

A round is a commit (`storage.manifest.edits.gc`), the set of what is reachable from the state it made, and
deletions. Safety rests on that order alone; ages only decide how much work in progress is refused.
"""
