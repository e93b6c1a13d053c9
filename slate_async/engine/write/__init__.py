"""The write path: batches, admission, group commit into the log, and flushing memtables to L0."""
