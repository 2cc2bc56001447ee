"""From batches to WAL objects: batches are recompressed, held, gathered and stored."""
