"""Which brokers clients should use, and which are too slow for that."""
