"""The lake: topics as Iceberg and Delta tables."""
