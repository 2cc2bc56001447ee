"""Settings of the gateway, which serves the HTTP API. `headwater.settings.settings` reads them."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from headwater.errors import ConfigError

MIB = 1 << 20
_NUMBERS = (
    "body_bytes",
    "bodies_bytes",
    "caller_bodies_bytes",
    "records",
    "connections",
    "connections_per_address",
    "requests",
    "requests_per_caller",
    "requests_per_second",
    "late_ms",
    "streams",
    "streams_per_caller",
    "page_items",
    "lookup_bytes",
    "head_bytes",
    "idle_ms",
    "stalled_ms",
    "drain_ms",
    "append_ms",
)


class Gateway(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The HTTP API and the REST catalog, in processes of their own (`headwater gateway`). `security.http` protects them
    as it protects the pages of `http`."""

    enabled: bool = True
    """Whether `headwater up` runs a gateway."""
    http: str = "127.0.0.1:8081"
    """`HOST:PORT` of the API. Port 0 takes any free port."""
    url: str = ""
    """URL that clients are given for the API, `http://HOST:PORT` or `https://HOST:PORT`. Empty: made from `http`."""
    flight: str = ""
    """`HOST:PORT` of Arrow Flight SQL, for ADBC and JDBC drivers, such as `127.0.0.1:8082`. Port 0 takes any
    free port. Empty: it is not served."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may call the API from a browser (CORS), such as `https://example.com`. `*` allows all.
    Empty: none."""
    body_bytes: int = 32 * MIB
    """Largest body of a request in bytes. Larger ones are refused with 413."""
    bodies_bytes: int = 512 * MIB
    """Bytes of bodies whose requests are not answered yet, streams apart. Further ones get 429."""
    caller_bodies_bytes: int = 128 * MIB
    """Such bytes of one caller. Further ones get 429."""
    records: int = 10_000
    """Records of one request. More are refused with 413."""
    connections: int = 2_000
    """Connections that a gateway serves at once. Further ones get 429 and are closed."""
    connections_per_address: int = 1_000
    """Connections from one address at once, so that one client cannot take them all. Further ones get 429 and are
    closed. Raise it if clients come through a proxy."""
    requests: int = 256
    """Requests that a gateway answers at once. Further ones get 429. Streams count separately."""
    requests_per_caller: int = 128
    """Such requests of one caller. Further ones get 429. A caller is a user, or an address if no user is known. Forms
    that log in have places of their own, a quarter of `requests`, and one address has a quarter of these."""
    late_ms: int = 1_000
    """How late a gateway may be with all that it does, because it has too much to do. While it is later, new requests
    get 429."""
    requests_per_second: int = 1_000
    """Requests of one caller a second, on average; twice as many at once. More get 429. A caller is a user, or an
    address if no user is known. Every gateway counts for itself."""
    streams: int = 1_000
    """Answers that follow a log until the client leaves, in all. Further ones get 429."""
    streams_per_caller: int = 600
    """Such answers of one caller. Further ones get 429."""
    page_items: int = 1_000
    """Items of one page of a listing at most. A caller who asks for more gets this many, and a cursor."""
    lookup_bytes: int = 67_108_864
    """Memory for look-ups: half for hashes of the keys that are not settled yet, half for bloom filters of files. What
    does not fit is read again at each look-up."""
    head_bytes: int = 65_536
    """Largest head of a request (its line and headers) in bytes. A connection with a larger one gets 431 and is
    closed."""
    idle_ms: int = 30_000
    """How long a connection may be silent between requests, in a head or in a body. After that it is closed. So is one
    whose body, streams apart, takes this long and a second more for each 16 KB of it."""
    stalled_ms: int = 30_000
    """How long an answer may wait for a client that reads less than 16 KB a second. After that the connection is
    closed."""
    append_ms: int = 30_000
    """How long a request waits for its records to be appended. After that they are dropped and the answer is 503; if
    they are already being stored, it is 504, and only a repeated request with an `Idempotency-Key` tells."""
    drain_ms: int = 10_000
    """How long a gateway that stops waits for the requests under way."""

    @property
    def log_ins(self) -> tuple[int, int]:
        """Forms that log in at once: in all, and from one address."""
        most = max(1, self.requests // 4)
        return most, max(1, most // 4)


def check_gateway(own: Gateway, parse_address: Callable[[str], tuple[str, int]]) -> None:
    """Raise `ConfigError` for values that cannot work."""
    for name in _NUMBERS:
        if getattr(own, name) <= 0:
            raise ConfigError(f"settings: gateway.{name} must be above 0")
    host, _ = parse_address(own.http)
    if own.flight:
        parse_address(own.flight)
    parts = urlsplit(own.url)
    if own.url and (parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/")):
        raise ConfigError("settings: gateway.url must have the form http://HOST:PORT or https://HOST:PORT")
    if own.enabled and not own.url and host in ("0.0.0.0", "::"):
        raise ConfigError("settings: gateway.url must name an address that clients can reach")
    for origin in own.origins:
        parts = urlsplit(origin)
        if origin != "*" and (parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}"):
            raise ConfigError(f"settings: gateway.origins: {origin!r} does not have the form https://HOST")


def public_url(own: Gateway, host: str, port: int, *, tls: bool) -> str:
    """The URL that clients are given for a gateway at an address; empty if the port is not known."""
    if own.url or not port:
        return own.url.rstrip("/")
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"
