"""SSTs in an object store: opening and reading them through a block cache, writing them."""
