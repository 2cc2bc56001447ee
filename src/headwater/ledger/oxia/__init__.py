"""The ledger in Oxia."""
