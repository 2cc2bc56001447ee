"""The APIs that this broker serves, with their versions. ApiVersions and the docs are derived from this.

Apache Kafka finishes one request of a connection before it begins the next, and clients count on that. Requests of one
connection overlap here only where no client can tell. The kind of an API says where: see `BESIDE`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headwater.broker.broker import Broker
from headwater.broker.request import Answer, Request
from headwater.wire.messages import RequestStart, api_name, known_versions

Handle: TypeAlias = Callable[[Broker, Request], Answer]
Read: TypeAlias = Callable[[RequestStart, memoryview], tuple[str, Any] | None]
Changes: TypeAlias = Callable[[Broker, Request], bool]


class RequestKind(enum.IntEnum):
    """What a request is to the other requests of its connection."""

    APPEND = 0
    """It appends records. Its handler keeps the order of arrival."""
    READ = 1
    """It reads what appends change, and is answered soon."""
    LOOKUP = 2
    """It reads what no append changes."""
    ALONE = 3
    """It changes something, or it waits for something to happen."""


BESIDE: Mapping[RequestKind, frozenset[RequestKind]] = {
    RequestKind.APPEND: frozenset({RequestKind.APPEND, RequestKind.LOOKUP}),
    RequestKind.READ: frozenset({RequestKind.READ, RequestKind.LOOKUP}),
    RequestKind.LOOKUP: frozenset({RequestKind.APPEND, RequestKind.READ, RequestKind.LOOKUP}),
    RequestKind.ALONE: frozenset(),
}
"""Beside which requests a request of each kind may be under way. It waits for all others that came before it."""
WAITS_FOR = tuple(tuple(int(other) for other in set(RequestKind) - BESIDE[kind]) for kind in RequestKind)
"""For each kind, the kinds that it waits for."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API and its handler."""

    key: int
    name: str
    versions: range
    handle: Handle
    kind: RequestKind
    changes: Changes | None = None
    """Whether a request of this API changes something, if only some requests do. Such a request is done alone."""
    read: Read | None = None
    """A faster decoder for the client id and the body of a request. It returns None for requests that it declines."""


APIS: dict[int, Api] = {}


def api(
    key: int,
    low: int,
    high: int,
    kind: RequestKind = RequestKind.ALONE,
    *,
    changes: Changes | None = None,
    read: Read | None = None,
) -> Callable[[Handle], Handle]:
    """Register a handler for an API key and a range of versions."""

    def register(handle: Handle) -> Handle:
        versions = range(low, high + 1)
        known = known_versions(key)
        if key in APIS or versions[0] not in known or versions[-1] not in known:
            raise ValueError(f"API {key} is registered twice or its versions {low} to {high} do not exist")
        APIS[key] = Api(key, api_name(key), versions, handle, kind, changes, read)
        return handle

    return register
