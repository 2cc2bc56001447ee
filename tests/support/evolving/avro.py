"""Avro, written and read by fastavro."""

from __future__ import annotations

import datetime
import io
import json
import random
from dataclasses import replace
from typing import Any

import fastavro

from tests.support.evolving.naming import plain_name
from tests.support.evolving.types import SYMBOLS, Part, Type, struct

_LOGICAL = {
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "local-timestamp-micros"},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros"},
    "binary": "bytes",
}
_COLUMNS = {
    "int": "long",
    "float": "double",
    "enum": "string",
    "uuid": "string",
    "time": "string",
    "decimal": "decimal(10,2)",
}


class Avro:
    """Avro's types: all but unsigned numbers. One of several types is a struct with a field for each."""

    name = "AVRO"

    def own(self, kind: Type) -> Type:
        parts = tuple(replace(part, name=plain_name(part.name), type=self.own(part.type)) for part in kind.parts)
        return Type("long" if kind.kind == "unsigned" else kind.kind, parts)

    def schema(self, own: Type, dice: random.Random) -> AvroSchema:
        return AvroSchema(own)

    def columns(self, own: Type) -> Type:
        if own.kind == "either":
            return struct(*(Part(part.type.kind, part.type) for part in own.parts))
        parts = tuple(replace(part, type=self.columns(part.type)) for part in own.parts)
        return Type(_COLUMNS.get(own.kind, own.kind), parts)


class AvroSchema:
    """One version."""

    def __init__(self, own: Type) -> None:
        self._own = own
        self._names = 0
        tree = self._tree(own)
        self.text = json.dumps(tree)
        self._parsed = fastavro.parse_schema(tree)

    def write(self, value: Any) -> bytes:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, self._parsed, _zoned(self._own, value))
        return sink.getvalue()

    def read(self, payload: bytes) -> Any:
        return _natural(self._own, fastavro.schemaless_reader(io.BytesIO(payload), self._parsed, None))

    def _tree(self, kind: Type) -> Any:
        match kind.kind:
            case "struct":
                name = self._name("Event" if not self._names else "Part")
                return {"type": "record", "name": name, "fields": [self._field(part) for part in kind.parts]}
            case "list":
                return {"type": "array", "items": self._part(kind.parts[0])}
            case "map":
                return {"type": "map", "values": self._part(kind.parts[0])}
            case "either":
                return [self._tree(part.type) for part in kind.parts]
            case "enum":
                return {"type": "enum", "name": self._name("Color"), "symbols": list(SYMBOLS)}
        return _LOGICAL.get(kind.kind, kind.kind)

    def _part(self, part: Part) -> Any:
        tree = self._tree(part.type)
        if not part.nullable or part.type.kind == "null":
            return tree
        return ["null", *(tree if isinstance(tree, list) else [tree])]

    def _field(self, part: Part) -> dict[str, Any]:
        tree = self._part(part)
        absent = tree == "null" or (isinstance(tree, list) and tree[0] == "null")
        return {"name": part.name, "type": tree, **({"default": None} if absent else {})}

    def _name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"


def _zoned(kind: Type, value: Any) -> Any:
    """A value as fastavro takes it: moments have a zone."""
    if value is None:
        return None
    match kind.kind:
        case "struct":
            return {part.name: _zoned(part.type, value.get(part.name)) for part in kind.parts}
        case "list":
            return [_zoned(kind.inner, one) for one in value]
        case "map":
            return {key: _zoned(kind.inner, one) for key, one in value.items()}
        case "timestamptz":
            return value.replace(tzinfo=datetime.UTC)
    return value


def _natural(kind: Type, value: Any) -> Any:
    """What fastavro has read, as the columns of a table have it."""
    if value is None:
        return None
    match kind.kind:
        case "struct":
            return {part.name: _natural(part.type, value[part.name]) for part in kind.parts}
        case "list":
            return [_natural(kind.inner, one) for one in value]
        case "map":
            return {key: _natural(kind.inner, one) for key, one in value.items()}
        case "either":
            chosen = "string" if isinstance(value, str) else "long"
            return {part.name: value if part.name == chosen else None for part in kind.parts}
        case "uuid":
            return str(value)
        case "time":
            return value.isoformat(timespec="microseconds")
        case "timestamptz":
            return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value
