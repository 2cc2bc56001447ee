"""Results of queries in all their forms, from Arrow batches to bytes. Nothing here knows HTTP."""
