"""Tests of `slate_async.codec`."""
