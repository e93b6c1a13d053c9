"""The roles of an open database: reading, writing, compaction, following, checkpoints, clones, feeds, GC."""
