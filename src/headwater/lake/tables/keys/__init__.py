"""The index of keys of a topic's table: which offsets have a key. Look-ups use it."""
