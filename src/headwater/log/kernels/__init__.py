"""Loops over bytes that numba compiles once there are enough records to make it worthwhile."""
