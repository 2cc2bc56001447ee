"""Groups of the classic protocol."""
