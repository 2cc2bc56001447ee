"""What ledger records mean: commands come in, results come out. No I/O, no event loop.

The same records give the same state in every process.
"""
