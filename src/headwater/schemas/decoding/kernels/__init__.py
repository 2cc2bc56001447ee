"""Compiled loops that decode payloads. Importing a module of this folder imports numba."""
