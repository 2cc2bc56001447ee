"""What parts of a domain of streams store: groups, transactions, keys, holds, typed columns."""
