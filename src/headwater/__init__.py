"""Headwater: a streaming log that is a lakehouse."""

__version__ = "0.3.0"
