"""Scenarios of collections in which processes run the product's own writers, read handles and controllers, over the
simulated object store and metastores."""
