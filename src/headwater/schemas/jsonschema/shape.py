"""The shape of the values that a JSON Schema describes.

| JSON Schema | shape |
|---|---|
| boolean, integer, number | boolean, long, double; an integer that may exceed 64 bits is decimal(38,0) |
| string | string; by its format date, timestamptz (`date-time`) or uuid |
| `enum` and `const` without a type | the types of the values |
| an object with properties | a struct of them, whatever else it may have |
| an object with `additionalProperties` or `patternProperties` of one type | a map |
| any other object | JSON |
| an array with `items` | a list; tuples are JSON |
| `$ref` | what it points to |
| `allOf`, `anyOf`, `oneOf`, `then`, `else`, several types | merged: objects are one struct with all properties |
| `true`, `{}` | JSON |

A property with values of several types becomes several fields of one name, at most one for each type of JSON: boolean,
number, string, object, array. Anywhere else such a value is JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headwater.schemas.jsonschema.bundling import follow
from headwater.schemas.jsonschema.model import JsonModel
from headwater.schemas.shapes import (
    BOOLEAN,
    DATE,
    DOUBLE,
    JSON,
    LONG,
    NULL,
    STRING,
    TIMESTAMPTZ,
    UUID,
    Field,
    Shape,
    decimal,
    digits,
    list_of,
    map_of,
    struct,
)
from headwater.schemas.unfolding import Unfolding, unfolded

_OLD = ("4", "6", "7")
_LARGE = decimal(38, 0)
_LONGS = range(-(1 << 63), 1 << 63)
_FORMATS = {"date": DATE, "date-time": TIMESTAMPTZ, "uuid": UUID}
_TYPES = {
    "boolean": "boolean",
    "long": "number",
    "double": "number",
    "string": "string",
    "date": "string",
    "timestamptz": "string",
    "uuid": "string",
    "struct": "object",
    "map": "object",
    "list": "array",
}
"""Types of JSON by the kinds of shapes."""
_TESTS = {
    "object": ("properties", "additionalProperties", "patternProperties", "required"),
    "array": ("items", "prefixItems"),
}
"""Keywords that tell the type of a schema which does not say it."""
MAX_DOC = 2_000
MAX_CALLS = 100
"""What is deeper in parts of schemas, each in the other, is JSON."""


def shape_of(model: JsonModel) -> Shape:
    """The shape of the schema's values."""
    return unfolded(lambda unfolding: _Shaper(model, unfolding).single(model.schema))


def record_of(model: JsonModel) -> str:
    """The title of the schema; empty if it has none."""
    title = model.schema.get("title") if isinstance(model.schema, dict) else None
    return title if isinstance(title, str) else ""


class _Shaper:
    """Shapes of schemas, in one attempt to unfold them."""

    def __init__(self, model: JsonModel, unfolding: Unfolding) -> None:
        self._root = model.schema
        self._old = model.draft in _OLD
        self._unfolding = unfolding
        self._calls = 0

    def single(self, schema: Any) -> Shape:
        """The one shape of all values; JSON if there are several."""
        found = self.shapes(schema)
        return JSON if len(found) > 1 else found[0] if found else NULL

    def shapes(self, schema: Any) -> list[Shape]:
        """The shapes of values, at most one for each type of JSON. None for a schema that only null or nothing fits."""
        self._unfolding.count()
        if self._calls >= MAX_CALLS:
            return [JSON]
        self._calls += 1
        try:
            return self._shapes(schema)
        finally:
            self._calls -= 1

    def _shapes(self, schema: Any) -> list[Shape]:
        if isinstance(schema, bool) or not schema:
            return [JSON] if schema or isinstance(schema, dict) else []
        if "$ref" in schema:
            return self._referred(schema)
        own = self._own(schema)
        for part in schema.get("allOf", ()):
            own = _both(own, self.shapes(part))
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                own = _both(own, merged(shape for part in schema[choice] for shape in self.shapes(part)))
        for branch in ("then", "else"):
            if "if" in schema and branch in schema:
                own = _also(own, self.shapes(schema[branch]))
        return [JSON] if own is None else own

    def _referred(self, schema: dict[str, Any]) -> list[Shape]:
        reference = schema["$ref"]
        with self._unfolding.into(("$ref", reference), deeper=False) as may:
            if not may:
                return [JSON]
            found = self.shapes(follow(self._root, reference))
        beside = {name: value for name, value in schema.items() if name not in ("$ref", "$schema", "$defs")}
        return found if self._old or not beside else _both(found, self.shapes(beside)) or []

    def _own(self, schema: dict[str, Any]) -> list[Shape] | None:
        """The shapes by the schema's own keywords; None if they say nothing about types."""
        kinds = schema.get("type")
        if kinds is None:
            values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else None
            if values is not None:
                return merged(shape for shape in map(_shape_of_value, values) if shape is not None)
            kinds = [kind for kind, words in _TESTS.items() if any(word in schema for word in words)]
            if not kinds:
                return None
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return merged(self._typed(kind, schema) for kind in kinds if kind != "null")

    def _typed(self, kind: str, schema: dict[str, Any]) -> Shape:
        match kind:
            case "boolean":
                return BOOLEAN
            case "integer":
                bounds = [schema.get(word) for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
                small = all(isinstance(one, bool) or int(one) in _LONGS for one in bounds if one is not None)
                return LONG if small else _LARGE
            case "number":
                return DOUBLE
            case "string":
                return _FORMATS.get(str(schema.get("format")), STRING)
            case "array":
                return self._array(schema)
        return self._object(schema)

    def _array(self, schema: dict[str, Any]) -> Shape:
        items = schema.get("items")
        if "prefixItems" in schema or not isinstance(items, dict):
            return JSON
        with self._unfolding.into() as may:
            return list_of(self.single(items), _doc(items)) if may else JSON

    def _object(self, schema: dict[str, Any]) -> Shape:
        properties = schema.get("properties") or {}
        with self._unfolding.into() as may:
            if not may:
                return JSON
            if not properties:
                return self._map(schema)
            fields = [
                Field(name, shape, _doc(self._named(part)))
                for name, part in properties.items()
                for shape in self.shapes(part) or ([] if part is False else [NULL])
            ]
        return struct(*fields) if fields else JSON

    def _map(self, schema: dict[str, Any]) -> Shape:
        """An object without properties that have names."""
        others = list((schema.get("patternProperties") or {}).values())
        rest = schema.get("additionalProperties")
        others += [rest] if isinstance(rest, dict) and rest else []
        if not others or (rest is not False and not isinstance(rest, dict) and len(others) != 1):
            return JSON
        found = merged(shape for other in others for shape in self.shapes(other))
        return map_of(found[0]) if len(found) == 1 else JSON

    def _named(self, part: Any) -> Any:
        """The schema whose description is that of a property."""
        if isinstance(part, dict) and "$ref" in part and not _doc(part):
            return follow(self._root, part["$ref"])
        return part


def merged(shapes: Iterable[Shape]) -> list[Shape]:
    """The shapes of values that have one of some shapes: at most one for each type of JSON."""
    found: dict[str, Shape] = {}
    for shape in shapes:
        if shape == JSON:
            return [JSON]
        if shape.kind != "null":
            kind = _json_type(shape)
            found[kind] = _joined(found[kind], shape) if kind in found else shape
            if found[kind] == JSON:
                return [JSON]
    return list(found.values())


def _joined(one: Shape, other: Shape) -> Shape:
    """The shape of values of two shapes that are of one type of JSON."""
    if one == other or other.kind == "null":
        return one
    if one.kind == "null":
        return other
    if one.kind == other.kind == "struct":
        return _joined_structs(one, other)
    if one.kind == other.kind and one.kind in ("list", "map"):
        inner = merged([one.fields[-1].shape, other.fields[-1].shape])
        part = inner[0] if len(inner) == 1 else JSON if inner else NULL
        return list_of(part) if one.kind == "list" else map_of(part)
    kind = _json_type(one)
    if kind == "number":
        return DOUBLE if DOUBLE in (one, other) else _LARGE
    return STRING if kind == "string" else JSON


def _joined_structs(one: Shape, other: Shape) -> Shape:
    names = {field.name: "" for field in (*one.fields, *other.fields)}
    fields = []
    for name in names:
        own = [field for shape in (one, other) for field in shape.fields if field.name == name]
        doc = next((field.doc for field in own if field.doc), "")
        shapes = merged(field.shape for field in own) or [NULL]
        fields += [Field(name, shape, doc) for shape in shapes]
    return struct(*fields)


def _both(own: list[Shape] | None, other: list[Shape]) -> list[Shape] | None:
    """The shapes of values that fit both: the known ones. Objects have the properties of both."""
    if own is None or own == [JSON]:
        return other
    if other == [JSON]:
        return own
    types = {_json_type(shape): shape for shape in other}
    common = [_narrower(shape, types[_json_type(shape)]) for shape in own if not types or _json_type(shape) in types]
    return common or own


def _narrower(one: Shape, other: Shape) -> Shape:
    """The shape of values that fit two shapes of one type of JSON."""
    if one.kind == other.kind == "struct":
        return _joined_structs(one, other)
    if "struct" in (one.kind, other.kind):
        return one if one.kind == "struct" else other
    if one.kind in ("string", "double"):
        return other
    return one


def _also(own: list[Shape] | None, other: list[Shape]) -> list[Shape] | None:
    """The shapes of values that fit one, and sometimes the other. What it says of properties is added."""
    more = next((shape for shape in other if shape.kind == "struct"), None)
    if own is None or more is None:
        return own
    return [_joined_structs(shape, more) if shape.kind == "struct" else shape for shape in own]


def _json_type(shape: Shape) -> str:
    return "number" if digits(shape.kind) else _TYPES[shape.kind]


def _shape_of_value(value: object) -> Shape | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return LONG if value in _LONGS else _LARGE
    if isinstance(value, float):
        return DOUBLE
    return STRING if isinstance(value, str) else JSON


def _doc(schema: Any) -> str:
    """What a schema says about itself."""
    said: Sequence[object] = [schema.get("description"), schema.get("title")] if isinstance(schema, dict) else []
    return next((doc[:MAX_DOC] for doc in said if isinstance(doc, str) and doc), "")
