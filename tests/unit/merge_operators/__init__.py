"""Tests of `slate_async.merge_operators`."""
