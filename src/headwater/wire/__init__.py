"""Kafka's protocol without sockets: frames, headers, and messages as kio's types."""

import sys

if "hypothesis" not in sys.modules:
    # Where it is installed, kio imports Hypothesis to register strategies, which takes longer than all else that a
    # broker imports. While kio's types are loaded it is made to look as if it were not there.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
