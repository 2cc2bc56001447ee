"""What the link process of a cluster on this machine says about a link, on the health page.

Only link processes know why a topic is not copied: the ledger has what was decided, not what was tried.
"""

from __future__ import annotations

import asyncio
import http.client
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from headwater.app.claims import owner_of
from headwater.errors import ConfigError
from headwater.settings.settings import Settings, parse_address

SECONDS = 3.0
MAX_PAGE = 64 << 20


async def link_reasons(settings: Settings, link: str) -> dict[str, str] | None:
    """What does not work of a link: parts with their reasons. None if no page can be read, which may need rights."""
    if settings.ledger:
        url = f"http://{settings.http}"  # the processes share their settings, and maybe the machine
    else:
        owner = await asyncio.to_thread(owner_of, Path(settings.data))
        url = owner.http if owner is not None else ""
    page = await asyncio.to_thread(_page, url)
    if page is None:
        return None
    parts = [(*one["name"].partition("/"), one["reason"]) for one in _parts(page)]
    return {part: reason for of, _, part, reason in parts if of == link and reason}


def _page(url: str) -> dict[str, Any] | None:
    try:
        connection = http.client.HTTPConnection(*parse_address(urlsplit(url).netloc), timeout=SECONDS)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            found = msgspec.json.decode(answer.read(MAX_PAGE))
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, msgspec.MsgspecError, ConfigError):
        return None  # nothing is there, or something else, or it speaks TLS
    return found if answer.status in (200, 503) and isinstance(found, dict) else None


def _parts(page: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts on the page of a supervisor, by process, or of a link process alone."""
    own = page.get("components")
    return own if isinstance(own, list) else [one for parts in page.get("parts", {}).values() for one in parts]
