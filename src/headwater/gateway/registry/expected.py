"""What a client of the registry expects, by the headers of its request: a media type, and the codes of its version."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headwater.gateway.asgi import App, Message, Receive, Scope, Send, first_values
from headwater.gateway.description.refusals import REGISTRY_MEDIA
from headwater.gateway.media import liked

JSON = "application/json"
_ALL = ("*/*", "application/*")
_TYPES = {REGISTRY_MEDIA: REGISTRY_MEDIA, "application/vnd.schemaregistry+json": REGISTRY_MEDIA, JSON: JSON}
_JAVA = re.compile(r"java/(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
_FIRST = {(8, 0): 4, (8, 1): 2}
"""The first releases of Confluent's registry whose code for schemas that are not compatible is 40901 and not 409."""


def media_type_of(headers: Mapping[bytes, bytes]) -> str:
    """The media type of the answer: plain JSON only for a client that does not like that of the registry as well."""
    best, liking = REGISTRY_MEDIA, 0.0
    for name, weight in liked(headers.get(b"accept", b"").decode("latin-1")):
        kind = REGISTRY_MEDIA if name in _ALL else _TYPES.get(name)
        if kind is not None and (weight > liking or (weight == liking and kind == REGISTRY_MEDIA)):
            best, liking = kind, weight
    return best


def knows_conflicts(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a client knows the code 40901.

    Clients tell their version since about the time when the registry got this code. Maintenance releases of older
    clients for Java tell theirs, too.
    """
    version = headers.get(b"confluent-client-version", b"").decode("latin-1")
    java = _JAVA.match(version)
    if java is None:
        return bool(version)
    major, minor, patch = map(int, java.groups())
    return (major, minor) >= (8, 2) or patch >= _FIRST.get((major, minor), patch + 1)


def as_expected(app: App) -> App:
    """The calls of the registry, whose answers have the media type that the client likes."""

    async def ask(scope: Scope, receive: Receive, send: Send) -> None:
        wanted = media_type_of(first_values(scope)).encode()

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (name, wanted if name.lower() == b"content-type" and value == REGISTRY_MEDIA.encode() else value)
                    for name, value in message.get("headers", ())
                ]
            await send(message)

        await app(scope, receive, sent)

    return ask
