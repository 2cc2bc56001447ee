"""Protobuf, compiled by protoc, written and read by Protobuf's own library."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from tests.support.evolving.naming import plain_name
from tests.support.evolving.types import SYMBOLS, Part, Type, walk

_OWN = {kind: "string" for kind in ("decimal", "uuid", "date", "time", "timestamp")}
_WORDS = {
    "boolean": "bool",
    "int": "sint32",
    "long": "int64",
    "unsigned": "uint64",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "enum": "Color",
    "timestamptz": "google.protobuf.Timestamp",
}
_COLUMNS = {"int": "long", "float": "double", "enum": "string", "unsigned": "decimal(20,0)"}
_MESSAGES = ("struct", "timestamptz")


class Protobuf:
    """Protobuf's types. One of several types is a `oneof`. Lists in lists are text. Elements are never null."""

    name = "PROTOBUF"

    def own(self, kind: Type) -> Type:
        if kind.kind in ("list", "map"):
            inner = self.own(kind.inner)
            if inner.kind in ("list", "map", "either", "null"):
                inner = Type("string")
            return Type(kind.kind, (Part(kind.parts[0].name, inner, False),))
        parts: list[Part] = []
        for part in kind.parts:
            name = plain_name(part.name)
            if part.type.kind == "either":
                own = [replace(one, name=f"{name}_{one.name}", nullable=True, choice=name) for one in part.type.parts]
                parts += own
            elif part.type.kind != "null":
                nullable = part.nullable and part.type.kind not in ("list", "map")
                parts.append(replace(part, name=name, type=self.own(part.type), nullable=nullable))
        return Type(_OWN.get(kind.kind, kind.kind), tuple(parts))

    def schema(self, own: Type, dice: random.Random) -> ProtobufSchema:
        return ProtobufSchema(own, later=dice.random() < 0.5)

    def columns(self, own: Type) -> Type:
        parts = tuple(replace(part, type=self.columns(part.type)) for part in own.parts)
        return Type(_COLUMNS.get(own.kind, own.kind), parts) if own.kind != "struct" or parts else Type("json")


class ProtobufSchema:
    """One version. With `later` the message is the second one of its file."""

    def __init__(self, own: Type, later: bool) -> None:
        self._own = own
        self._structs: list[Type] = []
        body = [*self._fields(own), f"enum Color {{ {' '.join(f'{name} = {i};' for i, name in enumerate(SYMBOLS))} }}"]
        written = 0
        while written < len(self._structs):
            body.append(f"message M{written} {{ {' '.join(self._fields(self._structs[written]))} }}")
            written += 1
        before = ["message Before { map<string, int32> counts = 1; }"] if later else []
        moments = any(one.kind == "timestamptz" for one in walk(own))
        imports = ['import "google/protobuf/timestamp.proto";'] if moments else []
        lines = ['syntax = "proto3";', "package shop;", *imports, *before]
        self.text = "\n".join([*lines, "message Event {", *(f"  {line}" for line in body), "}"])
        self._indexes = b"\x02\x02" if later else b"\x00"
        self._message = compiled(self.text, "shop.Event")

    def write(self, value: Any) -> bytes:
        message = self._message()
        _fill(self._own, message, value)
        return self._indexes + bytes(message.SerializeToString())

    def read(self, payload: bytes) -> Any:
        return _natural(self._own, self._message.FromString(payload[len(self._indexes) :]))

    def _fields(self, kind: Type) -> Iterator[str]:
        done: set[str] = set()
        for number, part in enumerate(kind.parts, 1):
            if part.choice:
                if part.choice not in done:
                    own = [(n, one) for n, one in enumerate(kind.parts, 1) if one.choice == part.choice]
                    inside = " ".join(f"{self._word(one.type)} {one.name} = {n};" for n, one in own)
                    yield f"oneof either_{part.choice} {{ {inside} }}"
                done.add(part.choice)
            else:
                yield f"{self._label(part)} {part.name} = {number};".strip()

    def _label(self, part: Part) -> str:
        kind = part.type
        if kind.kind == "list":
            return f"repeated {self._word(kind.inner)}"
        if kind.kind == "map":
            return f"map<string, {self._word(kind.inner)}>"
        optional = "optional " if part.nullable and kind.kind not in _MESSAGES else ""
        return f"{optional}{self._word(kind)}"

    def _word(self, kind: Type) -> str:
        if kind.kind == "struct":
            self._structs.append(kind)
            return f"M{len(self._structs) - 1}"
        return _WORDS[kind.kind]


def compiled(text: str, message: str) -> Any:
    """The class of a message of a .proto text."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory(prefix="headwater-test-") as directory:
        Path(directory, "event.proto").write_text(text)
        output = Path(directory, "descriptors")
        places = [f"-I{directory}", f"-I{files('grpc_tools') / '_proto'}"]
        code = protoc.main(["protoc", *places, "--include_imports", f"--descriptor_set_out={output}", "event.proto"])
        assert code == 0, text
        made = descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in made.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))


def _fill(kind: Type, message: Any, value: dict[str, Any]) -> None:
    for part in kind.parts:
        one = value.get(part.name)
        if one is None:
            continue
        match part.type.kind:
            case "struct":
                getattr(message, part.name).SetInParent()
                _fill(part.type, getattr(message, part.name), one)
            case "timestamptz":
                _set_moment(getattr(message, part.name), one)
            case "list":
                for element in one:
                    _add(part.type.inner, getattr(message, part.name), element)
            case "map":
                for key, element in one.items():
                    _put(part.type.inner, getattr(message, part.name), key, element)
            case _:
                setattr(message, part.name, _number(part.type, one))


def _add(kind: Type, repeated: Any, value: Any) -> None:
    if kind.kind == "struct":
        _fill(kind, repeated.add(), value)
    elif kind.kind == "timestamptz":
        _set_moment(repeated.add(), value)
    else:
        repeated.append(_number(kind, value))


def _put(kind: Type, entries: Any, key: str, value: Any) -> None:
    if kind.kind == "struct":
        _fill(kind, entries[key], value)
    elif kind.kind == "timestamptz":
        _set_moment(entries[key], value)
    else:
        entries[key] = _number(kind, value)


def _set_moment(message: Any, value: Any) -> None:
    made = timestamp_pb2.Timestamp()
    made.FromDatetime(value)
    message.seconds, message.nanos = made.seconds, made.nanos


def _number(kind: Type, value: Any) -> Any:
    return SYMBOLS.index(value) if kind.kind == "enum" else value


def _natural(kind: Type, message: Any) -> Any:
    """What Protobuf's library has read, as the columns of a table have it."""
    if kind.kind == "timestamptz":
        return timestamp_pb2.Timestamp(seconds=message.seconds, nanos=message.nanos).ToDatetime()
    if kind.kind == "enum":
        return SYMBOLS[message]
    if kind.kind == "unsigned":
        return Decimal(message)
    if kind.kind != "struct":
        return message
    found: dict[str, Any] = {}
    for part in kind.parts:
        value = getattr(message, part.name)
        if part.type.kind == "list":
            found[part.name] = [_natural(part.type.inner, one) for one in value]
        elif part.type.kind == "map":
            found[part.name] = {key: _natural(part.type.inner, value[key]) for key in value}
        else:
            told = part.nullable or part.choice or part.type.kind in _MESSAGES
            absent = told and not message.HasField(part.name)
            found[part.name] = None if absent else _natural(part.type, value)
    return found
