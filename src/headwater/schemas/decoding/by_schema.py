"""From a parsed schema to what decodes its payloads, whatever kind of schema it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headwater.errors import BadSchema
from headwater.schemas.decoding.avro import Program
from headwater.schemas.decoding.decoded import Decoded
from headwater.schemas.decoding.json_texts import Texts
from headwater.schemas.decoding.protobuf import Messages
from headwater.schemas.parsing import AvroModel, Parsed, ProtobufModel
from headwater.schemas.protobuf.model import message_name, pool_of
from headwater.schemas.shapes import Shape
from headwater.schemas.shaping import shape_of

if TYPE_CHECKING:
    import pyarrow as pa


class Decoder(Protocol):
    """Decodes payloads of one type. It is made once for a schema and kept by the caller."""

    shape: Shape
    """The shape of the decoded values."""

    def decode(self, payloads: pa.Array, front: int = 0) -> Decoded:
        """Decode payloads. Each has a prefix of `front` bytes, which is passed over. No payload raises."""


def decoder_of(parsed: Parsed, indexes: tuple[int, ...] = ()) -> Decoder:
    """What decodes payloads of a schema. Raises `BadSchema` if there is no such message.

    `indexes` choose a message of a Protobuf schema, as the prefix of a record does; without any it is the first one.
    """
    model = parsed.model
    if isinstance(model, AvroModel):
        return Program(model.tree, shape_of(parsed))
    if isinstance(model, ProtobufModel):
        try:
            name = message_name(model, indexes)
        except IndexError as error:
            raise BadSchema(str(error)) from None
        return Messages(pool_of(model.descriptors).FindMessageTypeByName(name), shape_of(parsed, name))
    return Texts(shape_of(parsed))
