"""Metadata stores: a compare-and-set register and a versioned sequence, over several backends."""
