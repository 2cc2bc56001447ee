"""Media types that a client likes, as its header `Accept` says."""

from __future__ import annotations

from collections.abc import Iterator


def liked(accept: str) -> Iterator[tuple[str, float]]:
    """Each media type or range of an `Accept`, with its weight. A client that says nothing likes all."""
    for part in accept.split(",") if accept.strip() else ["*/*"]:
        name, *parameters = (word.strip().lower() for word in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        yield name, weight
