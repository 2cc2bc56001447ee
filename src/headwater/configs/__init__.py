"""Kafka's dynamic configs: which names exist, which values they take, what they mean here."""
