"""Who does what with what is stored: reading, writing, compaction, following, checkpoints, clones, feeds, GC."""
