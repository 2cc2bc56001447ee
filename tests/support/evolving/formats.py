"""The formats of records: which types each has, how a schema is written, and what a library of others reads.

Nothing of Headwater is used here. fastavro, Protobuf's own library and `json` are the reference for values.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

from tests.support.evolving.avro import Avro
from tests.support.evolving.json import JsonSchema, PlainJson
from tests.support.evolving.protobuf import Protobuf
from tests.support.evolving.types import Type


class Schema(Protocol):
    """One version of a schema."""

    text: str

    def write(self, value: Any) -> bytes:
        """The payload of a value."""

    def read(self, payload: bytes) -> Any:
        """The value of a payload, in the types of `Format.columns`."""


class Format(Protocol):
    """A format of records."""

    name: str
    """As the registry has it; empty for JSON without a schema."""

    def own(self, kind: Type) -> Type:
        """The type that comes nearest in this format."""

    def schema(self, own: Type, dice: random.Random) -> Schema:
        """A schema for a type that the format has."""

    def columns(self, own: Type) -> Type:
        """The type of the columns of a table, as the documentation has it."""


FORMATS: dict[str, Format] = {"AVRO": Avro(), "PROTOBUF": Protobuf(), "JSON": JsonSchema(), "": PlainJson()}
