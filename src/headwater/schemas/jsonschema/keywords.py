"""Keywords of JSON Schema whose values are schemas. Everything else is data, and a `$ref` in it means nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.schemas.texts import step

ONE = (
    *("additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties"),
    *("propertyNames", "not", "if", "then", "else", "contentSchema"),
)
"""The value is a schema."""

NAMED = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas")
"""The value is an object whose members are schemas."""

LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
"""The value is a list of schemas."""

CONTAINERS = (*NAMED, *LISTED, "items", "dependencies")
"""The value has schemas in it. `items` may be a schema itself, and `dependencies` has lists of names too."""


def children(schema: dict[str, Any], place: str) -> Iterator[tuple[Any, str]]:
    """The schemas directly inside of a schema, with their places."""
    for name in ONE:
        if name in schema:
            yield schema[name], step(place, name)
    for name in NAMED:
        for member, child in schema.get(name, {}).items():
            yield child, step(step(place, name), member)
    for name in LISTED:
        for at, child in enumerate(schema.get(name, [])):
            yield child, step(step(place, name), at)
    items = schema.get("items")
    if isinstance(items, list):
        for at, child in enumerate(items):
            yield child, step(step(place, "items"), at)
    elif items is not None:
        yield items, step(place, "items")
    for member, child in schema.get("dependencies", {}).items():
        if not isinstance(child, list):
            yield child, step(step(place, "dependencies"), member)
