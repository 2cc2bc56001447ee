"""Handlers of producers and their transactions."""
