"""Compaction: planners (pure), the merge, executors, the compactor that drives them."""
