"""A Protobuf schema as the rest of the room uses it: descriptors of its file and of all that the file imports."""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from dataclasses import dataclass
from typing import Any

from headwater.errors import BadSchema
from headwater.schemas.protobuf import compiling, entries
from headwater.schemas.protobuf.options import Options, quoted
from headwater.schemas.protobuf.printing import Printer

MAX_TYPES = 20_000
"""The most messages, fields, enums and symbols in a schema with its references."""

_OPTIONS = "google/protobuf/descriptor.proto"
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True, slots=True)
class ProtobufModel:
    """A Protobuf schema with all that it imports."""

    descriptors: bytes
    """A FileDescriptorSet. A file comes after those that it imports; the schema's own file is the last one."""
    file: str
    """The name of the schema's own file in the set."""
    messages: tuple[str, ...]
    """The full names of the messages at the top of that file, in their order."""


def parse(text: str, references: tuple[tuple[str, str], ...]) -> tuple[str, str, ProtobufModel]:
    """The canonical text, the normalized text and the model of a Protobuf schema.

    A text is the text of a .proto file, or a FileDescriptorProto in Base64, as clients send it.
    """
    if not text.strip():
        raise BadSchema("The Protobuf schema is empty")
    texts: dict[str, str] = {}
    for name, one in references:
        # Types that Google publishes are those of the compiler, whatever the registry has.
        if not name.startswith("google/protobuf/"):
            texts[name] = entries.hidden(_proto_text(one, texts))
    name = "schema.proto"
    while name in texts:
        name = f"_{name}"
    texts[name] = entries.hidden(_proto_text(text, texts))
    descriptors = entries.restored(compiling.compiled(name, texts, compiling.child))
    files = files_of(descriptors)
    _check_size(files)
    own = files[-1]
    options = Options(pool_of(descriptors))
    return (
        Printer(own, options, normal=False).text(),
        Printer(own, options, normal=True).text(),
        model_of(descriptors),
    )


def model_of(descriptors: bytes) -> ProtobufModel:
    """The model of a schema that was compiled before, by the `descriptors` of its model."""
    own = files_of(descriptors)[-1]
    prefix = f"{own.package}." if own.package else ""
    return ProtobufModel(descriptors, own.name, tuple(prefix + message.name for message in own.message_type))


def files_of(descriptors: bytes) -> list[Any]:
    """The FileDescriptorProtos of a FileDescriptorSet, in their order."""
    from google.protobuf import descriptor_pb2

    return list(descriptor_pb2.FileDescriptorSet.FromString(descriptors).file)


def pool_of(descriptors: bytes) -> Any:
    """A pool of its own with all types of a FileDescriptorSet."""
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for file in files_of(descriptors):
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise BadSchema(f"The Protobuf schema cannot be used: {error}") from None
    return pool


def serialized(model: ProtobufModel) -> str:
    """The schema's own file as a FileDescriptorProto in Base64, which clients ask for by `format=serialized`."""
    own = files_of(model.descriptors)[-1]
    own.ClearField("source_code_info")
    entries.unmarked(own)
    return base64.b64encode(own.SerializeToString(deterministic=True)).decode()


def message_name(model: ProtobufModel, indexes: tuple[int, ...]) -> str:
    """The full name of the message that a record's message indexes choose. Raises `IndexError` if there is none."""
    own = files_of(model.descriptors)[-1]
    names, messages = [own.package] if own.package else [], own.message_type
    for index in indexes or (0,):
        if not 0 <= index < len(messages):
            raise IndexError(f"The schema has no message with the indexes {list(indexes)}")
        names.append(messages[index].name)
        messages = entries.counted(messages[index].nested_type)
    return ".".join(names)


def message_indexes(model: ProtobufModel, name: str) -> tuple[int, ...]:
    """The message indexes that choose the message with a full name. Raises `KeyError` if there is none."""
    own = files_of(model.descriptors)[-1]
    rest = name.removeprefix(f"{own.package}.") if own.package else name
    indexes, messages = [], own.message_type
    for part in rest.split("."):
        names = [message.name for message in messages]
        if part not in names:
            raise KeyError(f"The schema has no message {name}")
        indexes.append(names.index(part))
        messages = entries.counted(messages[indexes[-1]].nested_type)
    return tuple(indexes)


def _proto_text(text: str, texts: dict[str, str]) -> str:
    """The text of a .proto file, also if a FileDescriptorProto in Base64 was given. `texts` has what it may import."""
    joined = "".join(text.split())
    if _BASE64.fullmatch(joined) is None:
        return text
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(joined))
    except (binascii.Error, DecodeError, ValueError):
        return text
    pool = descriptor_pool.Default()
    if any(name == _OPTIONS or not name.startswith("google/protobuf/") for name in file.dependency):
        # Options may be defined by the files that it imports, or by itself.
        imports = "".join(f"import {quoted(name)};\n" for name in file.dependency)
        pool = pool_of(compiling.compiled("_", {**texts, "_": f'syntax = "proto3";\n{imports}'}, compiling.child))
        with contextlib.suppress(TypeError):  # the compiler finds the flaw again, and its place
            pool.AddSerializedFile(file.SerializeToString())
    entries.marked(file)
    return Printer(file, Options(pool), normal=False).text()


def _check_size(files: list[Any]) -> None:
    types = 0
    todo = [message for file in files for message in file.message_type]
    types += sum(len(enum.value) + 1 for file in files for enum in file.enum_type)
    while todo:
        message = todo.pop()
        types += 1 + len(message.field) + sum(len(enum.value) + 1 for enum in message.enum_type)
        todo.extend(message.nested_type)
        if types > MAX_TYPES:
            raise BadSchema(f"The Protobuf schema and what it imports have more than {MAX_TYPES} types and fields")
