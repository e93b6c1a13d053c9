"""Tests of `slate_async.format`."""
