"""The part of a process that follows the ledger and appends to it: replicas, checkpoints, membership, topics, users."""
