"""Tests of slate_async, mirroring its packages, and the machinery they stand on."""
