"""Avro schemas: their rules, their texts, and which schema reads what another one wrote."""
