"""Producing, fetching, and requests about records, offsets and producers."""
