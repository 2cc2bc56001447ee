"""The part of a process that follows ledgers: replicas, checkpoints, membership, topics and users."""
