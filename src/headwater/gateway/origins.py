"""Requests of browsers: which web pages may call the API (CORS), and what protects a gateway on loopback from others.

No page of another origin may, unless the settings name it. A browser lets any page send simple requests without asking,
and only keeps the answer from it. So a request that changes something is refused if it comes from another origin. A
page can also let its own name point to 127.0.0.1. So a gateway on loopback serves requests for loopback names only.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from headwater.gateway.problems import Kind, Refusal
from headwater.settings.addresses import is_loopback

METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
EXPOSED = "X-Request-Id, Retry-After, Location, ETag, Idempotency-Replayed, Preference-Applied, Headwater-Next"
MAX_AGE_SECONDS = 600
Raw = list[tuple[bytes, bytes]]
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
OTHER_ORIGIN = Kind(
    "other-origin", 403, "A web page of another origin may not do this",
    "A browser sent the request for a page of an origin that `gateway.origins` does not name. Nothing was changed.",
)  # fmt: skip
OTHER_HOST = Kind(
    "other-host", 421, "The request is for another host",
    "The gateway listens on loopback, and the request names another host: perhaps a web page whose name points to this "
    "machine. Use `localhost`, or name the host in `gateway.url`. Nothing was changed.",
)  # fmt: skip


class Origins:
    """The origins of the settings."""

    def __init__(self, allowed: Sequence[str], host: str, url: str) -> None:
        self._all = "*" in allowed
        self._allowed = frozenset(origin.encode() for origin in allowed)
        self._on_loopback = is_loopback(host)
        self._own_name = urlsplit(url).hostname or ""

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

    def check(self, method: str, origin: bytes | None, host: bytes | None) -> None:
        """Raise unless a request may be served. `origin` and `host` are its headers; only browsers send an origin."""
        if self._on_loopback and host is not None and not self._serves(host):
            raise Refusal(OTHER_HOST, f"the host {host.decode('latin-1')!r} is not one of this gateway")
        if origin is None or method in SAFE or self._all or origin in self._allowed:
            return
        if host is None or _place(origin) != host.decode("latin-1").lower():
            raise Refusal(OTHER_ORIGIN, f"the origin {origin.decode('latin-1')!r} is not in gateway.origins")

    def _serves(self, host: bytes) -> bool:
        """Whether the name in a Host header is that of this machine, or of the settings."""
        try:
            name = urlsplit(f"//{host.decode('latin-1')}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or (bool(name) and name == self._own_name)

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


def _place(origin: bytes) -> str:
    """The host and port of an origin; empty if it has none."""
    try:
        return urlsplit(origin.decode("latin-1")).netloc.lower()
    except ValueError:
        return ""
