"""The ledger in etcd."""
