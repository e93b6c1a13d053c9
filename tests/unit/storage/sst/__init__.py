"""Tests of `slate_async.storage.sst`."""
