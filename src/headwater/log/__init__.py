"""The log: record batches and their checks, WAL objects, segments, the writer and the reader."""
