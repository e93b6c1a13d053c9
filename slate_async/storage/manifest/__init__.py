"""The manifest: what the database *is*. Frozen state, pure edits, a codec, and the driver that commits edits."""
