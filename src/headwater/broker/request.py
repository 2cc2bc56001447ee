"""A request as handlers see it, its connection, and the forms of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from headwater.security.logins import Login
from headwater.security.quotas import user_of
from headwater.wire.messages import RequestStart

Values: TypeAlias = Mapping[str, Any]
"""The fields of a response. In an answer, `None` means that the protocol has no response."""


class Pending:
    """An answer that is not known yet. When it is, the receiver is called at once, without a turn of the event loop."""

    __slots__ = ("_then", "_values", "known", "moved")

    def __init__(self) -> None:
        self.known = False
        self.moved = 0
        """Bytes of the request that the write path counts from now on, whatever becomes of the request."""
        self._values: Values | None = None
        self._then: Callable[[Values | None], None] | None = None

    def then(self, receive: Callable[[Values | None], None]) -> None:
        """Call `receive` with the answer, now or as soon as it is known."""
        if self.known:
            receive(self._values)
        else:
            self._then = receive

    def __await__(self) -> Generator[Any, None, Values | None]:
        if not self.known:
            answered = asyncio.Event()
            self.then(lambda _: answered.set())
            yield from answered.wait().__await__()
        return self._values

    def lost(self) -> None:
        """The connection is lost: the answer reaches no client any more."""

    def answer(self, values: Values | None) -> None:
        """Set the answer."""
        self.known, self._values = True, values
        if self._then is not None:
            self._then(values)


Answer: TypeAlias = Values | Awaitable[Values | None] | None


class Peer(Protocol):
    """The connection of a request, as handlers see it."""

    listener: str
    """The name of the listener that accepted the connection."""
    peer: str
    """The client's address and port, `ADDRESS:PORT`."""
    software: tuple[str, str]
    """The client library's name and version; empty until the client sends them."""
    principal: str
    """The authenticated user, as `User:name`."""
    host: str
    """The address of the client."""
    login: Login | None
    """SASL state; None on listeners without SASL."""

    def let_in(self, principal: str) -> None:
        """Record that the client is authenticated as this principal."""

    def end(self) -> None:
        """Accept no more requests, and close the connection once every request is answered."""


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded request and its connection."""

    start: RequestStart
    client_id: str
    body: Any
    connection: Peer

    @property
    def version(self) -> int:
        return self.start.version

    @property
    def user(self) -> str:
        """The name by which quotas know the user."""
        return user_of(self.connection.principal)
