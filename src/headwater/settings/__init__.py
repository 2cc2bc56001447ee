"""Settings of a process as plain data: a file, the environment and flags become structs that are checked."""
