"""What tests of several packages share: databases in memory, rows, stores that count or fail."""
