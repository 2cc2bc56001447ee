"""What an example of the OpenAPI document is."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.gateway.records.bodies import JSON


class Sample(msgspec.Struct, frozen=True):
    """A request and its answer."""

    call: str
    """The operation id."""
    title: str
    """A name, once per call."""
    summary: str
    """What the example does."""
    status: int = 200
    answer: Any = None
    """The body of the answer; None for one that is not shown."""
    path: dict[str, Any] = {}
    query: dict[str, Any] = {}
    headers: dict[str, str] = {}
    body: Any = None
    """The body of the request: JSON, or text in another form."""
    media: str = JSON
    answer_media: str = JSON
