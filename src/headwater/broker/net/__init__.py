"""Sockets: listeners, connections, admission, throttling."""
