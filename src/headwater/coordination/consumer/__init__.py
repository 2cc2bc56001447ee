"""Groups of the KIP-848 protocol."""
