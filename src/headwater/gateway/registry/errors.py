"""Errors as clients of the schema registry expect them: a JSON object with `error_code` and `message`.

The code is the status, or a number of five digits whose first three are the status.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headwater.errors import SchemaReason
from headwater.gateway.description.refusals import REGISTRY_MEDIA
from headwater.gateway.problems import CODE, SCHEMA_CODES, Body, Refusal
from headwater.gateway.registry.expected import knows_conflicts, media_type_of

MEDIA_TYPE = REGISTRY_MEDIA
STORE = 50001
"""The code for a cluster that does not answer."""


class Told(msgspec.Struct, frozen=True):
    """An error."""

    error_code: int
    message: str


def body_of(refusal: Refusal, headers: Mapping[bytes, bytes]) -> Body:
    """The style of refusals below the paths of the schema registry. Old clients know 409 instead of 40901."""
    kind = refusal.kind
    code = refusal.more.get(CODE)
    if not isinstance(code, int):
        code = STORE if kind.retry and kind.status >= 500 else kind.status
    elif code == SCHEMA_CODES[SchemaReason.INCOMPATIBLE] and not knows_conflicts(headers):
        code = kind.status
    return Body(msgspec.json.encode(Told(code, refusal.detail or kind.title)), media_type_of(headers))
