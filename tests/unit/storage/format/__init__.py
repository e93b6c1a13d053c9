"""Tests of `slate_async.storage.format`."""
