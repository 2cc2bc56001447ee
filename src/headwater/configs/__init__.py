"""Kafka's dynamic configs: which keys exist, what values they take, what they mean here."""
