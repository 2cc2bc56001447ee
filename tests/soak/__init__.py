"""Runs that take long: `make soak`, or one of them by `python -m tests.soak.NAME --help`."""
