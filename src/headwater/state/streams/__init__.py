"""The state of domains 1 to N: streams, their indexes, tables, reservations and groups."""
