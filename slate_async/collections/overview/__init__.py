"""What a collection looks like now, as plain values."""
