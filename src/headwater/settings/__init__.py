"""Settings of a process as plain data: file, environment and flags become structs that are checked."""
