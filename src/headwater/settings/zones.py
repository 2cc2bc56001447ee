"""Zones: where processes are, as far as clients and other processes care."""

from __future__ import annotations

NO_ZONE = "local"
"""The zone of processes that were given none."""


def parse_zones(text: str) -> list[str]:
    """The zones in `ZONE,ZONE,…`; empty for an empty text."""
    return [zone.strip() for zone in text.split(",")] if text.strip() else []


def rack_of(zone: str) -> str:
    """The rack that clients see for a zone; empty for that of processes that were given none."""
    return "" if zone == NO_ZONE else zone
