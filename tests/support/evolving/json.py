"""JSON with a JSON Schema, and JSON without any."""

from __future__ import annotations

import datetime
import json
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

from tests.support.evolving.types import KEYS, SYMBOLS, Part, Type, struct

_OWN = {"int": "long", "float": "double", "binary": "string", "decimal": "string"}
_OWN |= {"time": "string", "timestamp": "string"}
_TYPES = {"boolean": "boolean", "long": "integer", "double": "number", "null": "null"}
_FORMATS = {"date": "date", "timestamptz": "date-time", "uuid": "uuid"}
_COLUMNS = {"enum": "string", "uuid": "string", "unsigned": "decimal(38,0)"}
_PLAIN = {"int": "long", "unsigned": "long", "float": "double"}
_PLAIN_KINDS = {"boolean", "long", "double", "struct", "list", "either", "null"}


class JsonSchema:
    """The types of JSON Schema. One of several types is as many columns."""

    name = "JSON"

    def own(self, kind: Type) -> Type:
        parts = tuple(replace(part, type=self.own(part.type)) for part in kind.parts)
        return Type(_OWN.get(kind.kind, kind.kind), parts)

    def schema(self, own: Type, dice: random.Random) -> JsonSchemaText:
        return JsonSchemaText(own)

    def columns(self, own: Type) -> Type:
        parts = []
        for part in own.parts:
            if part.type.kind == "either" and own.kind == "struct":
                parts += [replace(part, type=self.columns(one.type)) for one in part.type.parts]
            else:
                parts.append(replace(part, type=self.columns(part.type)))
        if own.kind == "either":
            return Type("json")
        return Type(_COLUMNS.get(own.kind, own.kind), tuple(parts))


class JsonSchemaText:
    """One version."""

    def __init__(self, own: Type) -> None:
        self._own = own
        root = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Event"}
        self.text = json.dumps({**root, **_tree(Part("", own, False))})

    def write(self, value: Any) -> bytes:
        return json.dumps(value, default=_text, ensure_ascii=False).encode()

    def read(self, payload: bytes) -> Any:
        return _natural(self._own, json.loads(payload))


class PlainJson:
    """What JSON itself has. A map is an object like any other."""

    name = ""

    def own(self, kind: Type) -> Type:
        if kind.kind == "map":
            inner = self.own(kind.inner)
            return struct(*(Part(key, inner) for key in KEYS))
        if kind.kind not in _PLAIN_KINDS | {*_PLAIN}:
            return Type("string")
        parts = tuple(replace(part, type=self.own(part.type)) for part in kind.parts)
        return Type(_PLAIN.get(kind.kind, kind.kind), parts)

    def schema(self, own: Type, dice: random.Random) -> PlainText:
        return PlainText()

    def columns(self, own: Type) -> Type:
        raise NotImplementedError("the types are found in the values")


class PlainText:
    """JSON as it is."""

    text = ""

    def write(self, value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=False).encode()

    def read(self, payload: bytes) -> Any:
        return json.loads(payload)


def _tree(part: Part) -> dict[str, Any]:
    kind = part.type
    found: dict[str, Any]
    match kind.kind:
        case "struct":
            found = {"type": "object", "properties": {one.name: _tree(one) for one in kind.parts}}
        case "list":
            found = {"type": "array", "items": _tree(kind.parts[0])}
        case "map":
            found = {"type": "object", "additionalProperties": _tree(kind.parts[0])}
        case "either":
            found = {"type": [_TYPES.get(one.type.kind, "string") for one in kind.parts]}
        case "enum":
            return {"enum": [*SYMBOLS, *([None] if part.nullable else [])]}
        case "unsigned":
            found = {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}
        case _:
            found = {"type": _TYPES.get(kind.kind, "string")}
            found |= {"format": _FORMATS[kind.kind]} if kind.kind in _FORMATS else {}
    if part.nullable and kind.kind != "null":
        kinds = found["type"] if isinstance(found["type"], list) else [found["type"]]
        found["type"] = [*kinds, "null"]
    return found


def _text(value: object) -> str:
    """Dates and moments as JSON has them."""
    if isinstance(value, datetime.datetime):
        return f"{value.isoformat()}Z"
    assert isinstance(value, datetime.date)
    return value.isoformat()


def _natural(kind: Type, value: Any) -> Any:
    """What `json` has read, as the columns of a table have it."""
    if value is None:
        return None
    match kind.kind:
        case "struct":
            return {part.name: _natural(part.type, value.get(part.name)) for part in kind.parts}
        case "list":
            return [_natural(kind.inner, one) for one in value]
        case "map":
            return {key: _natural(kind.inner, one) for key, one in value.items()}
        case "unsigned":
            return Decimal(value)
        case "date":
            return datetime.date.fromisoformat(value)
        case "timestamptz":
            return datetime.datetime.fromisoformat(value).replace(tzinfo=None)
    return value
