"""The HTTP listener of a process's pages, and access to them."""
