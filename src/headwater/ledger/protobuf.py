"""Messages of gRPC services, described in a few lines instead of generated files.

`messages("pkg", {"Pair": ("bytes key = 1", "repeated Pair next = 2")})` returns one class per name. Only the fields
that are used need to be listed. An enum is an `int32`, a map is a repeated message of `key = 1` and `value = 2`, and a
member of a oneof is an ordinary `optional` field: their bytes on the wire are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = re.compile(r"(?:(repeated|optional) )?([A-Za-z0-9]+) ([a-z_0-9]+) = ([0-9]+)")
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "fixed32": _Field.TYPE_FIXED32,
    "fixed64": _Field.TYPE_FIXED64,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}


def messages(package: str, fields: Mapping[str, Sequence[str]]) -> Any:
    """Message classes as attributes, by name. The package name is free: it is not on the wire."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, lines in fields.items():
        message = file.message_type.add(name=name)
        for line in lines:
            _add_field(message, package, fields, line)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return SimpleNamespace(**{name: message_factory.GetMessageClass(find(f"{package}.{name}")) for name in fields})


def _add_field(message: Any, package: str, known: Mapping[str, object], line: str) -> None:
    match = _FIELD.fullmatch(line)
    if match is None:
        raise ValueError(f"{line!r} is not of the form `[repeated|optional] type name = number`")
    label, kind, name, number = match.groups()
    field = message.field.add(name=name, number=int(number))
    field.label = _Field.LABEL_REPEATED if label == "repeated" else _Field.LABEL_OPTIONAL
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        if label == "optional":
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
    elif kind in known:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
    else:
        raise ValueError(f"{line!r} names a type that is neither a scalar nor one of the messages")
