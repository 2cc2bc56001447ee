"""WAL objects: their format, the cache of their bytes, and which broker of the zone caches which of them."""
