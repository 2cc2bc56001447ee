"""What schemas mean, without any I/O: parsing, compatibility, and the columns and values that follow from them.

Libraries are imported at their first use.
"""
