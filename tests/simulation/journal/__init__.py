"""The journal's own code on a disk that loses, tears and fails, under processes that are killed at any call."""
