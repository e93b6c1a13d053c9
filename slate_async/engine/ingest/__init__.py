"""Bulk ingest: sorted columns become SSTs, in any process, and one commit lets them into the database."""
