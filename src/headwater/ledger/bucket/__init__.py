"""The ledger in a bucket. It needs nothing but conditional PUTs."""
