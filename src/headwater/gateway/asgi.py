"""Types of ASGI, the interface between the server and the application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = tuple[tuple[str, str], ...]
OURS = "headwater"
"""The key of what the server says of a connection in `scope["extensions"]`, and of the request in `scope["state"]`."""


def first_values(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request by name; of several with the same name the first."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        found.setdefault(name, value)
    return found
