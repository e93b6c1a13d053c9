"""Watches: durable rows as they come, from one source in memory for any number of watchers."""
