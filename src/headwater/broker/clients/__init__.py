"""What a broker knows about its clients: quotas, telemetry, fetch sessions."""
