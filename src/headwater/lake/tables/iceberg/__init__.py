"""The Iceberg table of a topic."""
