"""The journal: a ledger in one sequence of files, for all processes of one machine.

`frames.py` has the bytes, `disk.py` what is asked of an operating system, `page.py` what the processes share in memory.
`reader.py` follows the files, `images.py` has the places of WAL objects in them, `opening.py` finds their end after a
crash, `writer.py` appends and deletes. `ledger.py` is the backend. All but `disk.py` and `ledger.py` run on the
simulation's disk, too.
"""
