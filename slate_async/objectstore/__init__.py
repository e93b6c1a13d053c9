"""Object stores: the protocol, its backends, and the conformance suite they all pass."""
