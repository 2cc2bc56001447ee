"""JSON values as Protobuf data, and back, by Protobuf's own JSON mapping."""

from __future__ import annotations

from typing import Any

from headwater.errors import BadValue
from headwater.schemas.protobuf.model import ProtobufModel, pool_of

MAX_DEPTH = 100
"""The deepest nesting of a value."""


class ProtobufCodec:
    """Encodes and decodes one message of a schema: the one with this full name, else the first one."""

    def __init__(self, model: ProtobufModel, message: str = "") -> None:
        from google.protobuf import message_factory

        name = message or (model.messages[0] if model.messages else "")
        self._pool = pool_of(model.descriptors)
        try:
            found = self._pool.FindMessageTypeByName(name)
        except KeyError:
            raise BadValue(f"The schema has no message {name!r}" if name else "The schema has no message") from None
        self._class = message_factory.GetMessageClass(found)

    def encode(self, value: Any) -> bytes:
        """The bytes of a value. Raises `BadValue`, with the place."""
        from google.protobuf import json_format
        from google.protobuf.message import EncodeError

        if not isinstance(value, dict) and self._class.DESCRIPTOR.file.package != "google.protobuf":
            raise BadValue("The value at the top is no object")
        try:
            message = json_format.ParseDict(
                value, self._class(), descriptor_pool=self._pool, max_recursion_depth=MAX_DEPTH
            )
            data: bytes = message.SerializeToString(deterministic=True)
        except (json_format.ParseError, EncodeError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise BadValue(f"The value does not fit the message: {error}"[:500]) from None
        return data

    def decode(self, data: bytes) -> Any:
        """The value of bytes, as JSON. Raises `BadValue` if they are not of the message."""
        from google.protobuf import json_format
        from google.protobuf.message import DecodeError

        try:
            return json_format.MessageToDict(self._class.FromString(data), descriptor_pool=self._pool)
        except (DecodeError, json_format.Error, ValueError, TypeError, RecursionError) as error:
            raise BadValue(f"The bytes are not of the message: {error}"[:500]) from None
