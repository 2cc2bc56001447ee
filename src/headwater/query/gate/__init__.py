"""The first gate of a query: what a statement may ask. Pure; it opens nothing and runs nothing.

`check` of `checking.py` takes a caller's text and gives a `Statement`: one SELECT whose tables are topics that the
caller may read. What an engine runs is written anew from the checked tree. It never runs the caller's text, which
DuckDB parses only to compare it, and never looks up the name of a table that the caller chose.
"""
