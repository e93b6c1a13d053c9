"""Benchmarks beside peers, run by ``scripts/bench``: ratios within one run, never absolute bounds."""
