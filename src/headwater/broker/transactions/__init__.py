"""Transactions in a broker: which broker watches a transactional id, time-outs, and producer ids."""
