"""A small asyncio Kafka client: connections, metadata, admin calls, an idempotent producer and a reader."""
