"""Brokers of a zone that read WAL objects for each other."""
