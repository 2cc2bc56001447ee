"""The embedded ledger, in a SQLite file."""
