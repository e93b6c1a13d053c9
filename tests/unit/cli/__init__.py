"""The `slate` command, over a fake database."""
