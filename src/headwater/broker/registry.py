"""Which APIs this broker answers, in which versions. ApiVersions and the docs are derived from this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headwater.wire.messages import RequestStart, api_name, known_versions

if TYPE_CHECKING:
    from headwater.broker.core import Broker

Values: TypeAlias = Mapping[str, Any]
"""A response's fields; `None` where the protocol wants no response."""

Answer: TypeAlias = Values | Awaitable[Values | None] | None
Handle: TypeAlias = "Callable[[Broker, Request], Answer]"
Read: TypeAlias = Callable[[RequestStart, memoryview], tuple[str, Any] | None]


class Peer(Protocol):
    """What a handler may know of the connection a request came by."""

    listener: str
    """The name of the listener it was accepted on."""
    host: str
    """The client's address."""
    peer: str
    """Where it comes from, `ADDRESS:PORT`."""
    software: tuple[str, str]
    """The client library's name and version, empty until it says so."""


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded request and where it came from."""

    start: RequestStart
    client_id: str
    body: Any
    connection: Peer

    @property
    def version(self) -> int:
        return self.start.version


@dataclass(frozen=True, slots=True)
class Api:
    """One API and who handles it."""

    key: int
    name: str
    versions: range
    handle: Handle
    serial: bool
    """Whether one connection has at most one such request under way, because its answers are large."""
    read: Read | None = None
    """A quicker way than the general one to a request's client id and body. It may decline."""


APIS: dict[int, Api] = {}


def api(key: int, low: int, high: int, *, serial: bool = False, read: Read | None = None) -> Callable[[Handle], Handle]:
    """Register a handler for an API key and a range of versions."""

    def register(handle: Handle) -> Handle:
        versions = range(low, high + 1)
        known = known_versions(key)
        if key in APIS or versions[0] not in known or versions[-1] not in known:
            raise ValueError(f"API {key} is registered twice or its versions {low} to {high} do not exist")
        APIS[key] = Api(key, api_name(key), versions, handle, serial, read)
        return handle

    return register
