"""Compiling the loops of all decoders ahead of time, so that no process has to do that later."""

from __future__ import annotations

from headwater.schemas.decoding import json_plain
from headwater.schemas.decoding.by_schema import decoder_of
from headwater.schemas.parsing import SchemaKind, Source, parse

_AVRO = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}'
_PROTOBUF = 'syntax = "proto3"; message R { int64 a = 1; string b = 2; }'


def compile_decoders() -> None:
    """Decode one record of each format, and look for the schema of one."""
    import numpy as np
    import pyarrow as pa

    from headwater.schemas.decoding.kernels.framing import PREFIX_BYTES, read_ids

    json_plain.infer(pa.array([b'{"a": 1, "b": ["x", 2.5, null, true]}'], pa.binary()))
    for kind, text, payload in (
        (SchemaKind.AVRO, _AVRO, b"\x02\x02x"),
        (SchemaKind.PROTOBUF, _PROTOBUF, b"\x08\x01\x12\x01x"),
    ):
        decoder_of(parse(Source(kind, text))).decode(pa.array([payload], pa.binary()))
    data, borders = np.zeros(PREFIX_BYTES, np.uint8), np.array([0, PREFIX_BYTES], np.int32)
    for array in (data, borders):
        array.flags.writeable = False
    read_ids(data, borders, np.zeros(1, np.int64))
