"""Tests over real processes and real servers."""
