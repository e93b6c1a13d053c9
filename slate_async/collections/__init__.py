"""Persistent collections: durable sets of updates ``(data, time, diff)`` in an object store.

The contents of a collection at time t are the sums of diff over the updates whose times are at or before t.
"""
