"""Protobuf schemas: compiled in a child process, printed, and compared by Confluent's rules."""
