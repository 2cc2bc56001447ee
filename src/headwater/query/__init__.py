"""The rows of a topic at one moment, those in files and those that are still in the WAL, and SQL over them."""
