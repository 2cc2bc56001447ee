"""The log itself: record batches and their checks, the WAL format, the writer and the reader."""
