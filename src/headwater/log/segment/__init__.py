"""Segments: Parquet files of records. Writing them, reading them, and turning rows back into batches."""
