"""Payloads become Arrow arrays, by their schemas.

Each format is one module. Payloads of one schema are decoded together, by a compiled loop that takes each payload byte
by byte, checks it, and names the flaw of a bad one. A bad payload costs no more than a good one.
"""
