"""`headwater sql`: a statement for scripts, and a shell for people. Both ask a gateway."""
