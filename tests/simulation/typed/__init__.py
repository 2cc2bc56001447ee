"""Typed columns under seeded misfortune."""
