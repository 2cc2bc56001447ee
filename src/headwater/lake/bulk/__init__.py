"""Appends of whole Arrow or Parquet files."""
