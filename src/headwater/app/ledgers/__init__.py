"""Commands about ledgers: checkpoints, copies, and going on after a loss."""
