"""The log: record batches, WAL objects, segments, the write path, the reader, retention and housekeeping."""
