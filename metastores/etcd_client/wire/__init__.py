"""Messages of etcd: generated from ``etcd.proto``, which a test compares."""
