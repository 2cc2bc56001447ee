"""Kafka's protocol without sockets: frames, headers, and messages as kio's types."""
