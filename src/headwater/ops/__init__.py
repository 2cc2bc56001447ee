"""Operation: logs, metrics, a small HTTP server, the arithmetic of `headwater cost`."""
