"""The shape of an Avro schema's values.

| Avro | shape |
|---|---|
| boolean, int, long, float, double, string | the same |
| bytes, fixed | binary |
| enum | string |
| array, map, record | list, map, struct; a record without fields is JSON |
| a union of null and one type | the type |
| any other union | a struct with one field for each type but null, of which one has a value |
| decimal | decimal; string with more than 38 digits |
| date, time-*, uuid | date, time, uuid |
| timestamp-*, local-timestamp-* | timestamptz, timestamp; nanoseconds are cut |
| duration | a struct of months, days and millis |

A field of a union's struct has the name of its type: `string`, `array`, or the name of a record without its namespace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.schemas.avro.model import AvroModel
from headwater.schemas.shapes import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    JSON,
    LONG,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Field,
    Shape,
    decimal,
    list_of,
    map_of,
    struct,
)
from headwater.schemas.unfolding import Unfolding, unfolded

_PLAIN = {
    "null": NULL,
    "boolean": BOOLEAN,
    "int": INT,
    "long": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "bytes": BINARY,
    "fixed": BINARY,
    "string": STRING,
    "enum": STRING,
}
_DURATION = struct(Field("months", LONG), Field("days", LONG), Field("millis", LONG))
_LOGICAL = {
    "date": DATE,
    "time-millis": TIME,
    "time-micros": TIME,
    "timestamp-millis": TIMESTAMPTZ,
    "timestamp-micros": TIMESTAMPTZ,
    "timestamp-nanos": TIMESTAMPTZ,
    "local-timestamp-millis": TIMESTAMP,
    "local-timestamp-micros": TIMESTAMP,
    "local-timestamp-nanos": TIMESTAMP,
    "uuid": UUID,
    "duration": _DURATION,
}


def shape_of(model: AvroModel) -> Shape:
    """The shape of the schema's values."""
    definitions = dict(_definitions(model.tree))
    return unfolded(lambda unfolding: _Shaper(definitions, unfolding).shape(model.tree))


def record_of(model: AvroModel) -> str:
    """The name of the schema's record type without its namespace; empty for other types."""
    tree = model.tree
    return _short(tree["name"]) if isinstance(tree, dict) and tree["type"] in ("record", "error") else ""


class _Shaper:
    """Shapes of types, in one attempt to unfold them."""

    def __init__(self, definitions: dict[str, Any], unfolding: Unfolding) -> None:
        self._definitions = definitions
        self._unfolding = unfolding

    def shape(self, tree: Any) -> Shape:
        tree = self._definitions.get(tree, tree) if isinstance(tree, str) else tree
        if isinstance(tree, list):
            return self._union(tree)
        kind = tree if isinstance(tree, str) else tree["type"]
        if kind in ("record", "error"):
            with self._unfolding.into(tree["name"]) as may:
                fields = [self._field(field) for field in tree["fields"]] if may else []
            return struct(*fields) if fields else JSON
        if kind in ("array", "map"):
            with self._unfolding.into() as may:
                if not may:
                    return JSON
                return list_of(self.shape(tree["items"])) if kind == "array" else map_of(self.shape(tree["values"]))
        self._unfolding.count()
        return _PLAIN[kind] if isinstance(tree, str) else _scalar(tree)

    def _field(self, field: dict[str, Any]) -> Field:
        return Field(field["name"], self.shape(field["type"]), self._doc(field))

    def _doc(self, field: dict[str, Any]) -> str:
        """What the field's schema says about it, else what its type's says."""
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        named = [self._definitions.get(kind, kind) if isinstance(kind, str) else kind for kind in kinds]
        types = [kind for kind in named if isinstance(kind, dict)]
        said = [field.get("doc"), *(kind.get("doc") for kind in types if len(types) == 1)]
        return next((doc for doc in said if isinstance(doc, str) and doc), "")

    def _union(self, branches: list[Any]) -> Shape:
        real = [branch for branch in branches if branch != "null" and branch != {"type": "null"}]
        if len(real) < 2:
            return self.shape(real[0]) if real else NULL
        names = [self._branch(branch) for branch in real]
        short = [_short(name) for name in names]
        fields = []
        with self._unfolding.into() as may:
            if not may:
                return JSON
            for branch, name in zip(real, names, strict=True):
                alone = short.count(_short(name)) == 1
                fields.append(Field(_short(name) if alone else name, self.shape(branch)))
        return struct(*fields)

    def _branch(self, branch: Any) -> str:
        """The full name of a type of a union."""
        if isinstance(branch, str):
            return branch
        name: str = branch.get("name", branch["type"])
        return name


def _scalar(tree: dict[str, Any]) -> Shape:
    logical = tree.get("logicalType")
    if logical == "decimal":
        return decimal(tree["precision"], tree.get("scale", 0))
    return _LOGICAL.get(str(logical), _PLAIN[tree["type"]])


def _definitions(tree: Any) -> Iterator[tuple[str, Any]]:
    """The named types of a schema."""
    todo = [tree]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo.extend(one)
        elif isinstance(one, dict):
            if "name" in one:
                yield one["name"], one
            todo.extend(field["type"] for field in one.get("fields", ()))
            todo.extend(one[part] for part in ("items", "values") if part in one)


def _short(name: str) -> str:
    return name.rpartition(".")[2]
