"""The first requests of a client: versions, features, log-in, metadata, telemetry."""
