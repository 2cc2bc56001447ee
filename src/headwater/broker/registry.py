"""Which APIs this broker answers, in which versions. ApiVersions and the docs are derived from this."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headwater.wire.messages import RequestStart, api_name, known_versions

if TYPE_CHECKING:
    from headwater.broker.core import Broker
    from headwater.broker.logins import Login

Values: TypeAlias = Mapping[str, Any]
"""A response's fields; `None` where the protocol wants no response."""


class Pending:
    """An answer that is not known yet. Whoever asked hears it at once, and not in a later turn of the event loop."""

    __slots__ = ("_then", "_values", "known")

    def __init__(self) -> None:
        self.known = False
        self._values: Values | None = None
        self._then: Callable[[Values | None], None] | None = None

    def then(self, tell: Callable[[Values | None], None]) -> None:
        """Tell one who asked, now or as soon as the answer is known."""
        if self.known:
            tell(self._values)
        else:
            self._then = tell

    def __await__(self) -> Generator[Any, None, Values | None]:
        if not self.known:
            heard = asyncio.Event()
            self.then(lambda _: heard.set())
            yield from heard.wait().__await__()
        return self._values

    def answer(self, values: Values | None) -> None:
        """This is the answer."""
        self.known, self._values = True, values
        if self._then is not None:
            self._then(values)


Answer: TypeAlias = Values | Awaitable[Values | None] | None
Handle: TypeAlias = "Callable[[Broker, Request], Answer]"
Read: TypeAlias = Callable[[RequestStart, memoryview], tuple[str, Any] | None]


class Peer(Protocol):
    """What a handler may know of the connection a request came by."""

    listener: str
    """The name of the listener it was accepted on."""
    peer: str
    """Where it comes from, `ADDRESS:PORT`."""
    software: tuple[str, str]
    """The client library's name and version, empty until it says so."""
    principal: str
    """Who is at the other end: `User:name`."""
    host: str
    """The address of the other end."""
    login: Login | None
    """How it says who it is, on a listener that asks for that."""

    def let_in(self, principal: str) -> None:
        """It is known now who is at the other end."""

    def end(self) -> None:
        """Take no more requests, and close the connection once everything is answered."""


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
