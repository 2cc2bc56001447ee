"""Confluent's schema registry: its paths, its answers, its errors. The registry itself is `replica/schemas.py`."""
