"""Serves Kafka's protocol: sockets, a registry of APIs, a module per family of APIs, the coordinator of groups."""
