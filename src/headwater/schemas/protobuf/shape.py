"""The shape of a Protobuf message.

| Protobuf | shape |
|---|---|
| int32, sint32, sfixed32 | int |
| int64, sint64, sfixed64, uint32, fixed32 | long |
| uint64, fixed64 | decimal(20,0), because no table has unsigned numbers |
| float, double, bool, string, bytes | float, double, boolean, string, binary |
| enum | string |
| repeated, map | list; map, whose keys become strings |
| a message, a group | a struct; JSON if it has no fields |
| oneof | its fields, each as it is alone |
| Timestamp | timestamptz; nanoseconds are cut |
| the wrappers (`Int32Value` and so on) | the type inside |
| Struct, Value, ListValue, Any | JSON |

Duration and the other types that Google publishes are messages like any other. Extensions have no columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.schemas.protobuf.model import ProtobufModel, files_of
from headwater.schemas.shapes import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    JSON,
    LONG,
    STRING,
    TIMESTAMPTZ,
    Field,
    Shape,
    decimal,
    list_of,
    map_of,
    struct,
)
from headwater.schemas.unfolding import Unfolding, unfolded

_UNSIGNED = decimal(20, 0)
_SCALARS = {
    1: DOUBLE,
    2: FLOAT,
    3: LONG,
    4: _UNSIGNED,
    5: INT,
    6: _UNSIGNED,
    7: LONG,
    8: BOOLEAN,
    9: STRING,
    12: BINARY,
    13: LONG,
    14: STRING,
    15: INT,
    16: LONG,
    17: INT,
    18: LONG,
}
"""Shapes by the numbers that descriptors have for types. 10 and 11 are groups and messages."""
_KNOWN = {
    "google.protobuf.Timestamp": TIMESTAMPTZ,
    "google.protobuf.DoubleValue": DOUBLE,
    "google.protobuf.FloatValue": FLOAT,
    "google.protobuf.Int64Value": LONG,
    "google.protobuf.UInt64Value": _UNSIGNED,
    "google.protobuf.Int32Value": INT,
    "google.protobuf.UInt32Value": LONG,
    "google.protobuf.BoolValue": BOOLEAN,
    "google.protobuf.StringValue": STRING,
    "google.protobuf.BytesValue": BINARY,
    "google.protobuf.Struct": JSON,
    "google.protobuf.Value": JSON,
    "google.protobuf.ListValue": JSON,
    "google.protobuf.Any": JSON,
}
_REPEATED = 3
_MESSAGE, _FIELD, _NESTED = 4, 2, 3
"""Numbers of the lists in a file and in a message, in the paths of comments."""


def shape_of(model: ProtobufModel, message: str = "") -> Shape:
    """The shape of a message, by its full name; of the first one of the file if none is named."""
    messages: dict[str, Any] = {}
    docs: dict[str, str] = {}
    for file in files_of(model.descriptors):
        messages.update(_messages(file.message_type, file.package))
        docs.update(_docs(file))
    name = message or model.messages[0]
    return unfolded(lambda unfolding: _Shaper(messages, docs, unfolding).message(name))


def record_of(model: ProtobufModel, message: str = "") -> str:
    """The name of a message without its package."""
    return (message or model.messages[0]).rpartition(".")[2]


class _Shaper:
    """Shapes of messages, in one attempt to unfold them."""

    def __init__(self, messages: dict[str, Any], docs: dict[str, str], unfolding: Unfolding) -> None:
        self._messages = messages
        self._docs = docs
        self._unfolding = unfolding

    def message(self, name: str) -> Shape:
        if name in _KNOWN:
            return _KNOWN[name]
        with self._unfolding.into(name) as may:
            if not may:
                return JSON
            fields = [
                Field(field.name, self._field(field), self._docs.get(f"{name}.{field.name}", ""))
                for field in self._messages[name].field
            ]
        return struct(*fields) if fields else JSON

    def _field(self, field: Any) -> Shape:
        kind = field.type_name.removeprefix(".")
        if field.label != _REPEATED:
            return self._one(field, kind)
        with self._unfolding.into() as may:
            if not may:
                return JSON
            entry = self._messages.get(kind)
            if entry is not None and entry.options.map_entry:
                value = entry.field[1]
                return map_of(self._one(value, value.type_name.removeprefix(".")))
            return list_of(self._one(field, kind))

    def _one(self, field: Any, kind: str) -> Shape:
        """The shape of one value of a field."""
        self._unfolding.count()
        return _SCALARS[field.type] if field.type in _SCALARS else self.message(kind)


def _messages(found: Any, within: str) -> Iterator[tuple[str, Any]]:
    """All messages by their full names."""
    for message in found:
        name = f"{within}.{message.name}" if within else message.name
        yield name, message
        yield from _messages(message.nested_type, name)


def _docs(file: Any) -> Iterator[tuple[str, str]]:
    """The comments of fields, by the fields' full names."""
    for location in file.source_code_info.location:
        doc = (location.leading_comments or location.trailing_comments).strip()
        name = _named(file, list(location.path)) if doc else ""
        if name:
            yield name, doc


def _named(file: Any, path: list[int]) -> str:
    """The full name of the field at a path of a descriptor; empty if something else is there."""
    if len(path) < 4 or path[0] != _MESSAGE or path[-2] != _FIELD or len(path) % 2:
        return ""
    if any(step != _NESTED for step in path[2:-2:2]):
        return ""
    message = file.message_type[path[1]]
    names = [file.package] if file.package else []
    names.append(message.name)
    for at in path[3:-2:2]:
        message = message.nested_type[at]
        names.append(message.name)
    return ".".join([*names, message.field[path[-1]].name])
