"""The peer benchmark: Headwater and Apache Kafka on one machine, driven by the same clients."""
