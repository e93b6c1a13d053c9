"""Readers of collections: leased holds, what they follow, snapshots at a time."""
