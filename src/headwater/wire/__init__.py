"""Kafka's protocol without sockets: frames, headers, and messages as kio's types."""

import sys

if "hypothesis" not in sys.modules:
    # If Hypothesis is installed, kio imports it to register strategies. That takes longer than all other imports of a
    # broker. So Hypothesis is hidden while kio's types are loaded.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
