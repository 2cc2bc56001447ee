"""Records over HTTP: forms of keys and values, appending as one unit, reading and following."""
