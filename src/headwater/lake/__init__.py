"""The lake: topics as tables."""
