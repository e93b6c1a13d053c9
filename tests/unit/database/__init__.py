"""The public contract of an open database."""
