"""Events of exactly 100 bytes as Avro, Protobuf and JSON, for topics with typed columns.

Two hundred thousand events are made and then repeated. A row group has half as many rows, so nothing repeats in one.
Libraries of the formats are imported at first use: an earlier build that is measured beside this one may lack them.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.segments import START_MS, Case
from benchmarks.settle_inputs import OBJECT_BYTES, Input, json_value, key
from headwater.client.records import Record, encode_batch
from headwater.log.batch import Batch
from headwater.wire.codecs import NONE

DISTINCT = 200_000
BATCH_ROWS = 1_000
VALUE_BYTES = 100
PLAIN, SUBJECT = "", "events-value"
AVRO, PROTOBUF, JSON_SCHEMA = "AVRO", "PROTOBUF", "JSON"
Event = dict[str, Any]

AVRO_SCHEMA: Event = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "country", "type": "string"},
        {"name": "ok", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}
PROTO = """syntax = "proto3";
enum Kind { A = 0; B = 1; C = 2; }
message Event {
  int64 id = 1; string user = 2; double amount = 3; string country = 4; bool ok = 5; int64 at = 6;
  Kind kind = 7; repeated string tags = 8; optional string note = 9;
}
"""
JSON_FIELDS = {"id": "integer", "user": "string", "amount": "number", "country": "string", "ok": "boolean"}
SCHEMA_OF_JSON: Event = {
    "type": "object",
    "properties": {name: {"type": kind} for name, kind in {**JSON_FIELDS, "note": "string"}.items()},
}
SCHEMAS = {AVRO: json.dumps(AVRO_SCHEMA), PROTOBUF: PROTO, JSON_SCHEMA: json.dumps(SCHEMA_OF_JSON)}


@dataclass(frozen=True, slots=True)
class TypedCase(Case):
    """Events in one format. `wanted` records a second of CPU are the aim."""

    kind: str
    wanted: int

    @property
    def source(self) -> str:
        """The topic config `headwater.value.schema`."""
        return "auto" if self.kind else "json"


def _case(name: str, kind: str, wanted: int, size: int = VALUE_BYTES) -> TypedCase:
    return TypedCase(f"{name}, {size} B", size, BATCH_ROWS, NONE, kind, wanted)


ORDERS = _case("JSON orders", PLAIN, 400_000, 120)
"""What the sink reads."""
TYPED_CASES = [
    _case("Avro", AVRO, 600_000),
    _case("Protobuf", PROTOBUF, 600_000),
    _case("JSON Schema", JSON_SCHEMA, 400_000),
    _case("JSON", PLAIN, 400_000),
    ORDERS,
]


def event(number: int) -> Event:
    """An event by its number, always the same; without its note."""
    chance = random.Random(number)
    return {
        "id": number,
        "user": f"user-{chance.randrange(100_000):05d}",
        "amount": round(chance.uniform(0, 1_000), 2),
        "country": chance.choice(["de", "fr", "us", "jp"]),
        "ok": chance.random() < 0.9,
        "at": START_MS + number,
        "kind": chance.choice(["A", "B", "C"]),
        "tags": ["x", "yy"][: chance.randrange(3)],
    }


def make_typed(case: TypedCase, rows: int, schema_id: int) -> Input:
    """The batches of a case, cut into WAL objects. Batches come again after `DISTINCT` records."""
    made = _batches(case, schema_id)
    objects: list[list[Batch]] = [[]]
    size = 0
    for number in range(rows // BATCH_ROWS):
        batch = made[number % len(made)]
        if size + len(batch.data) > OBJECT_BYTES:
            objects.append([])
            size = 0
        size += len(batch.data)
        objects[-1].append(batch)
    return Input(case, rows, objects)


def sum_of_ids(rows: int) -> int:
    """What the ids of the first rows add up to."""
    rounds, rest = divmod(rows, DISTINCT)
    return rounds * (DISTINCT * (DISTINCT - 1) // 2) + rest * (rest - 1) // 2


@cache
def _batches(case: TypedCase, schema_id: int) -> list[Batch]:
    encode = _encoder(case, schema_id)
    found = []
    for at in range(0, DISTINCT, BATCH_ROWS):
        records = [Record(0, START_MS + i, key(i), encode(i)) for i in range(at, at + BATCH_ROWS)]
        if wrong := next((record for record in records if len(record.value or b"") != case.value_bytes), None):
            raise ValueError(f"{case.name}: {wrong.value!r} has {len(wrong.value or b'')} bytes")
        first, last = records[0].timestamp, records[-1].timestamp
        found.append(Batch(encode_batch(records, codec=case.codec), BATCH_ROWS, first, last, -1, -1, -1))
    return found


def _encoder(case: TypedCase, schema_id: int) -> Callable[[int], bytes]:
    """What makes the value of an event, with the prefix that Confluent's serializers write."""
    if case is ORDERS:
        return lambda number: json_value(number, case.value_bytes)
    write = {AVRO: _avro, PROTOBUF: _protobuf, JSON_SCHEMA: _json, PLAIN: _json}[case.kind]()
    front = b"\0" + schema_id.to_bytes(4, "big") if case.kind else b""
    front += b"\0" if case.kind == PROTOBUF else b""  # the first message of the file

    def encode(number: int) -> bytes:
        found = event(number)
        size = case.value_bytes - len(front)
        note = hashlib.shake_128(key(number)).hexdigest(size)
        bare = size - len(write({**found, "note": note[:1]}))
        return front + write({**found, "note": note[: bare + 1]})

    return encode


def _avro() -> Callable[[Event], bytes]:
    import fastavro

    schema = fastavro.parse_schema(AVRO_SCHEMA)

    def write(found: Event) -> bytes:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, schema, found)
        return sink.getvalue()

    return write


def _protobuf() -> Callable[[Event], bytes]:
    from benchmarks.decoding import message_kind
    from headwater.schemas.parsing import SchemaKind, Source, parse

    kind = message_kind(parse(Source(SchemaKind.PROTOBUF, PROTO)))

    def write(found: Event) -> bytes:
        made: bytes = kind(**found).SerializeToString()
        return made

    return write


def _json() -> Callable[[Event], bytes]:
    def write(found: Event) -> bytes:
        told = {name: found[name] for name in (*JSON_FIELDS, "note")}
        return json.dumps(told, separators=(",", ":")).encode()

    return write
