"""The Delta table of a topic."""
