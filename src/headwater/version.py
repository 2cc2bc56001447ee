"""The version of this build."""

__version__ = "0.4.0"
