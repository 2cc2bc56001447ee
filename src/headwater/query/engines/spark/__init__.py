"""Spark as an engine: one process, started when it is first needed, with a session of its own."""
