"""Deterministic simulation: several processes of the engine in one seeded event loop with virtual time.

* `loop`: the event loop; `anyio_order` keeps anyio deterministic in it
* `world`, `node`, `runtime`: processes that crash, freeze and have clocks of their own
* `network`, `faults`: what happens to a request on its way
* `store`, `metadata`: the object store and the metastore behind that network
* `trace`: what happened, as one hash
* `history`, `checkers`, `linearizability`: what users saw, and whether they may have
* `scenarios`, `rules`, `catalogue`, `runner`: what is run, over many seeds (`scripts/simulate`)

Rule for everything here: the same seed gives the same trace, in any interpreter. So nothing iterates over a set of
objects, nothing draws from a generator that is not seeded from the world's seed, and nothing asks the real clock.
"""
