"""JSON values to the bytes of records by a schema, and back."""

from __future__ import annotations

import struct
from typing import Any, Protocol

from headwater.schemas.avro.encoding import AvroCodec, varint
from headwater.schemas.jsonschema.encoding import JsonCodec, TooMuchWork
from headwater.schemas.parsing import AvroModel, JsonModel, Parsed
from headwater.schemas.protobuf.encoding import ProtobufCodec

__all__ = ["Codec", "TooMuchWork", "codec", "prefix", "varint"]


class Codec(Protocol):
    """Encodes and decodes by one schema. It keeps nothing of a value, so several threads may use it."""

    def encode(self, value: Any) -> bytes:
        """The payload of a value. Raises `BadValue`, which names the place, if it does not fit the schema."""
        ...

    def decode(self, data: bytes) -> Any:
        """The value of a payload. Raises `BadValue` if the payload is not of the schema."""
        ...


def codec(parsed: Parsed, message: str = "") -> Codec:
    """What encodes and decodes by a schema. `message` is the full name of a Protobuf message; else it is the first."""
    if isinstance(parsed.model, AvroModel):
        return AvroCodec(parsed.model)
    if isinstance(parsed.model, JsonModel):
        return JsonCodec(parsed.model)
    return ProtobufCodec(parsed.model, message)


def prefix(schema: int, indexes: tuple[int, ...] | None = None) -> bytes:
    """What comes before a payload: the id of its schema, and for Protobuf the indexes of its message."""
    head = b"\0" + struct.pack(">I", schema)
    if indexes is None:
        return head
    if indexes == (0,):
        return head + b"\0"  # the first message of a file, which is the usual case, has a short form
    return head + varint(len(indexes)) + b"".join(varint(index) for index in indexes)
