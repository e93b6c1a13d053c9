"""Checkpoints: versions of a database that stay readable, made, lengthened, listed and read."""
