"""Web pages of other origins that may call the API from a browser (CORS). None may, unless the settings name it."""

from __future__ import annotations

from collections.abc import Sequence

METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
EXPOSED = "X-Request-Id, Retry-After, Location, ETag, Idempotency-Replayed"
MAX_AGE_SECONDS = 600
Raw = list[tuple[bytes, bytes]]


class Origins:
    """The origins of the settings."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._all = "*" in allowed
        self._allowed = frozenset(origin.encode() for origin in allowed)

    def __repr__(self) -> str:
        return f"<Origins, {'all' if self._all else len(self._allowed)}>"

    def headers(self, origin: bytes | None) -> Raw:
        """The headers that let a page of this origin read an answer; none if it may not."""
        if not self._allowed:
            return []
        vary = [(b"vary", b"Origin")]
        if origin is None or not (self._all or origin in self._allowed):
            return vary
        return [
            *vary,
            (b"access-control-allow-origin", b"*" if self._all else origin),
            (b"access-control-expose-headers", EXPOSED.encode()),
        ]

    def preflight(self, origin: bytes | None, asked: bytes | None) -> Raw | None:
        """The answer to a browser that asks whether a page may send a request; None if it is no such question."""
        told = self.headers(origin)
        if origin is None or asked is None or len(told) < 2:
            return None
        return [
            *told,
            (b"access-control-allow-methods", METHODS.encode()),
            (b"access-control-allow-headers", b"Authorization, Content-Type, Accept, Idempotency-Key, Last-Event-ID"),
            (b"access-control-max-age", str(MAX_AGE_SECONDS).encode()),
        ]
