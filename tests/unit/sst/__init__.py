"""Tests of `slate_async.sst`."""
