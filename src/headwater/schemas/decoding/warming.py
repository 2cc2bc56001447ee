"""Compiling the loops of all decoders ahead of time, so that no process has to do that later."""

from __future__ import annotations

from headwater.schemas.decoding import json_plain
from headwater.schemas.decoding.by_schema import decoder_of
from headwater.schemas.parsing import SchemaKind, Source, parse

_AVRO = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}'
_PROTOBUF = 'syntax = "proto3"; message R { int64 a = 1; string b = 2; }'


def compile_decoders() -> None:
    """Decode one record of each format."""
    import pyarrow as pa

    json_plain.infer(pa.array([b'{"a": 1, "b": ["x", 2.5, null, true]}'], pa.binary()))
    for kind, text, payload in (
        (SchemaKind.AVRO, _AVRO, b"\x02\x02x"),
        (SchemaKind.PROTOBUF, _PROTOBUF, b"\x08\x01\x12\x01x"),
    ):
        decoder_of(parse(Source(kind, text))).decode(pa.array([payload], pa.binary()))
