"""JSON Schemas: bundled with what they refer to, and compared by Confluent's rules."""
