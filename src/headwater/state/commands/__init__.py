"""The commands of ledger records, one module per family."""
