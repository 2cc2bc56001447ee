"""How fast one core decodes payloads, by our loops and by the formats' own libraries for Python.

Run `python -m benchmarks.decoding`. Payloads have about 100 bytes and nine fields. Rates are per second of CPU.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf import message_factory

from headwater.schemas.decoding.by_schema import decoder_of
from headwater.schemas.decoding.json_plain import decode, decode_as, infer
from headwater.schemas.parsing import Parsed, ProtobufModel, SchemaKind, Source, parse
from headwater.schemas.protobuf.model import pool_of

START_MS = 1_700_000_000_000
SLOW_ROWS = 20_000
AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "country", "type": "string"},
        {"name": "ok", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
PROTO = """syntax = "proto3";
enum Kind { A = 0; B = 1; C = 2; }
message Event {
  int64 id = 1; string user = 2; double amount = 3; string country = 4; bool ok = 5; int64 at = 6;
  optional string note = 7; Kind kind = 8; repeated string tags = 9;
}
"""
JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "user": {"type": "string"},
        "amount": {"type": "number"},
        "country": {"type": "string"},
        "ok": {"type": "boolean"},
        "at": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


def events(rows: int) -> list[dict[str, Any]]:
    """Events that are the same in every run."""
    source = random.Random(1)
    return [
        {
            "id": at,
            "user": f"user-{source.randrange(100_000)}",
            "amount": round(source.uniform(0, 1_000), 2),
            "country": source.choice(["de", "fr", "us", "jp"]),
            "ok": source.random() < 0.9,
            "at": START_MS + at,
            "note": None if at % 2 else "a note that fills the record to its length of a hundred bytes",
            "kind": source.choice(["A", "B", "C"]),
            "tags": ["x", "yy"][: source.randrange(3)],
        }
        for at in range(rows)
    ]


def avro_payloads(rows: list[dict[str, Any]]) -> list[bytes]:
    schema = fastavro.parse_schema(AVRO)
    payloads = []
    for row in rows:
        target = io.BytesIO()
        fastavro.schemaless_writer(target, schema, row)
        payloads.append(target.getvalue())
    return payloads


def message_kind(parsed: Parsed) -> Any:
    if not isinstance(parsed.model, ProtobufModel):
        raise TypeError(parsed.kind)
    return message_factory.GetMessageClass(pool_of(parsed.model.descriptors).FindMessageTypeByName("Event"))


def json_payloads(rows: list[dict[str, Any]]) -> list[bytes]:
    wanted = list(JSON["properties"])
    return [json.dumps({name: row[name] for name in wanted}, separators=(",", ":")).encode() for row in rows]


def rate(work: Callable[[], object], rows: int, repeats: int = 5) -> float:
    """Rows per second of CPU, in millions: the best of some runs."""
    best = 0.0
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = max(best, rows / (time.process_time() - start) / 1e6)
    return best


def cut(payloads: list[bytes]) -> list[bytes]:
    """The same, of which one in a hundred is cut short."""
    return [payload[:-1] if at % 100 == 0 else payload for at, payload in enumerate(payloads)]


def report(
    name: str, payloads: list[bytes], fast: Callable[[pa.Array], object], slow: Callable[[bytes], object]
) -> None:
    sizes = sum(map(len, payloads)) / len(payloads)
    whole, bad = pa.array(payloads, pa.binary()), pa.array(cut(payloads), pa.binary())
    fast(whole)
    few = payloads[:SLOW_ROWS]
    numbers = [
        rate(lambda: fast(whole), len(payloads)),
        rate(lambda: fast(bad), len(payloads)),
        rate(lambda: [slow(payload) for payload in few], len(few), 2),
    ]
    print(f"| {name} | {sizes:.0f} | " + " | ".join(f"{number:.2f}" for number in numbers) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    rows = events(parser.parse_args().rows)
    print("Millions of payloads per second of CPU.\n")
    print("| format | bytes | loop | 1 % bad | library, Python objects |\n|---|---|---|---|---|")
    avro = decoder_of(parse(Source(SchemaKind.AVRO, json.dumps(AVRO))))
    schema = fastavro.parse_schema(AVRO)
    report(
        "Avro",
        avro_payloads(rows),
        avro.decode,
        lambda payload: fastavro.schemaless_reader(io.BytesIO(payload), schema, None),
    )
    parsed = parse(Source(SchemaKind.PROTOBUF, PROTO))
    kind = message_kind(parsed)
    messages = [kind(**row).SerializeToString() for row in rows]
    report("Protobuf", messages, decoder_of(parsed).decode, kind.FromString)
    texts = json_payloads(rows)
    report("JSON Schema", texts, decoder_of(parse(Source(SchemaKind.JSON, json.dumps(JSON)))).decode, json.loads)
    shape = infer(pa.array(texts, pa.binary()))
    report("JSON, known shape", texts, lambda given: decode_as(shape, given), json.loads)
    report("JSON, with its shape", texts, decode, json.loads)


if __name__ == "__main__":
    main()
