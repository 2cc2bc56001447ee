"""HTTP: what is served beside the Kafka protocol."""
