"""`headwater doctor`: index, heads, ledger, checkpoints, objects and tables are checked against each other."""
