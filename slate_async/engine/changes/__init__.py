"""The change feed: every put and delete of a database in the order of their sequence numbers."""
