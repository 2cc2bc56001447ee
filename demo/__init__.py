"""One set of files, read by everybody."""
