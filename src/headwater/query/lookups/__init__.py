"""Look-ups: one record by its offset, and the newest record with a key, without reading a topic."""
