"""Names with a slash in a path. A client sends the slash as `%2F`, and the parts of the path stay what they are.

A server decodes a path before it is divided into parts, so a slash of a name would look like one between parts. It is
replaced by a character that no decoded path has, and put back in what handlers get.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from headwater.gateway.asgi import App, Receive, Scope, Send

SLASH = "\udc2f"
"""Stands for a slash of a name. UTF-8 has no such character, so no decoded path has it."""
_SENT = re.compile(r"%2f", re.IGNORECASE)


def divided(scope: Scope) -> None:
    """Let the path of a request tell slashes of names from those between its parts."""
    raw = scope.get("raw_path") or b""
    if b"%2" not in raw:
        return
    parts = _SENT.split(raw.decode("latin-1").partition("?")[0])
    scope["path"] = SLASH.join(unquote(part) for part in parts)


def shown(path: str) -> str:
    """A path as people write it."""
    return path.replace(SLASH, "/")


def named(app: App) -> App:
    """The application, whose handlers get names with their slashes. It is called after the path was divided."""

    async def ask(scope: Scope, receive: Receive, send: Send) -> None:
        if SLASH in scope["path"]:
            scope["path"] = shown(scope["path"])
            # A new dictionary: the router keeps the old one for the next request.
            scope["path_params"] = {
                name: shown(value) if isinstance(value, str) else value for name, value in scope["path_params"].items()
            }
        await app(scope, receive, send)

    return ask
