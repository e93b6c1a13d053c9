"""What transactions are validated by: keys that were read, rows that were written since, conditions, turns."""
