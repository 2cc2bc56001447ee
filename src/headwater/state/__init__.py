"""What ledger records mean: commands, and the pure state machines that fold them. No I/O, no event loop."""
