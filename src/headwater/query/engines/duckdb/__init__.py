"""DuckDB, in child processes of the gateway that each answer one query at a time."""
