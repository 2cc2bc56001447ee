"""The gateway: an HTTP API to the log and its tables."""
