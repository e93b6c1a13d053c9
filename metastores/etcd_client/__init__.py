"""A small client of etcd 3.4 and later over gRPC: several endpoints, three outcomes of a transaction, watches that say
where they are.
"""
