"""The APIs that this broker serves, with their versions. ApiVersions and the docs are derived from this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from headwater.broker.broker import Broker
from headwater.broker.request import Answer, Request
from headwater.wire.messages import RequestStart, api_name, known_versions

Handle: TypeAlias = Callable[[Broker, Request], Answer]
Read: TypeAlias = Callable[[RequestStart, memoryview], tuple[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Api:
    """One API and its handler."""

    key: int
    name: str
    versions: range
    handle: Handle
    serial: bool
    """Whether one connection has at most one such request under way, because its answers are large."""
    read: Read | None = None
    """A faster decoder for the client id and the body of a request. It returns None for requests that it declines."""


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
