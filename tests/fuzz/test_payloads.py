"""Spoiled payloads of every format: a decoder names the flaw or gives a value, and uses no more memory than it may.

`make soak` takes more of them.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

import psutil
import pyarrow as pa
import pytest

from headwater.schemas.decoding.by_schema import Decoder, decoder_of
from headwater.schemas.decoding.json_plain import decode_as, infer
from headwater.schemas.parsing import SchemaKind, Source, parse
from tests.support.avro_samples import Samples
from tests.support.soak import WHOLE

SEED = int(os.environ.get("HEADWATER_TEST_SEED", "1"))
SCHEMAS = 400 if WHOLE else 4
ROWS = 400 if WHOLE else 120
MAX_GROWTH = 300 << 20
TOO_MANY = "too many elements"
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto"; import "google/protobuf/struct.proto";
message All {
  int32 a = 1; sint64 b = 2; fixed64 c = 3; float d = 4; string e = 5; bytes f = 6; bool g = 7;
  repeated int64 h = 8; repeated string i = 9; map<string, All> j = 10; repeated All k = 11; All l = 12;
  oneof m { All n = 13; string o = 14; google.protobuf.Timestamp p = 15; google.protobuf.Value q = 16; }
  map<int32, double> r = 17; enum E { Z = 0; } repeated E s = 18;
}
"""
NUMBERS = [
    b"\xff" * 9 + b"\x01",
    b"\xfe\xff\xff\xff\x0f",
    b"\x80" * 9 + b"\x01",
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80\x80",
]


def spoiled(source: random.Random, data: bytes) -> bytes:
    """The same with other bytes in some places: random ones, huge numbers, pieces of itself, or less of it."""
    changed = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 5))):
        at, end = sorted(source.randrange(len(changed) + 1) for _ in range(2))
        kind = source.randrange(6)
        if kind == 0:
            changed[at : at + 1] = source.randbytes(1)
        elif kind == 1:
            changed[at : at + source.randint(0, 2)] = source.choice(NUMBERS)
        elif kind == 2:
            del changed[at : min(end, at + 8)]
        elif kind == 3:
            changed[at:at] = changed[at:end] * source.choice((1, 1, 50))
        elif kind == 4:
            changed[at:at] = source.choice([b"[", b'{"', b"\x0b", b"\x02", b"\\u"]) * source.choice((1, 3, 2_000))
        else:
            del changed[end:]
    return bytes(changed[:20_000])


def check(decoder: Decoder, payloads: list[bytes]) -> None:
    """All payloads at once and one by one give the same."""
    found = decoder.decode(pa.array(payloads, pa.binary()))
    found.array.validate(full=True)
    assert len(found.array) == len(payloads)
    for row in range(0, len(payloads), 20):
        alone = decoder.decode(pa.array([payloads[row]], pa.binary()))
        if TOO_MANY in alone.errors.get(0, "") + found.errors.get(row, ""):
            continue  # rows share what they may use
        assert alone.errors.get(0) == found.errors.get(row)
        assert alone.array.to_string() == found.array.slice(row, 1).to_string()


def grown(before: int) -> int:
    return int(psutil.Process().memory_info().rss) - before


@pytest.mark.parametrize("seed", range(SEED, SEED + SCHEMAS))
def test_avro(seed: int) -> None:
    samples = Samples(seed)
    tree = samples.record()
    decoder = decoder_of(parse(Source(SchemaKind.AVRO, json.dumps(tree))))
    before = psutil.Process().memory_info().rss
    check(decoder, [spoiled(samples.source, samples.value(tree)[0]) for _ in range(ROWS)])
    assert grown(before) < MAX_GROWTH


def test_recursive_avro() -> None:
    tree = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "x", "type": {"type": "array", "items": "R"}},
            {"name": "y", "type": ["null", "R", {"type": "map", "values": "R"}, {"type": "array", "items": "null"}]},
        ],
    }
    decoder = decoder_of(parse(Source(SchemaKind.AVRO, json.dumps(tree))))
    source = random.Random(SEED)
    sound = b"\x04\x00\x02\x02\x00\x00\x00\x00\x00\x00\x04\x02\x02a\x00\x00\x00\x06\x02\x00"
    before = psutil.Process().memory_info().rss
    check(decoder, [spoiled(source, sound) for _ in range(ROWS)] + [b"\x02" * 30_000])
    assert grown(before) < MAX_GROWTH


@pytest.mark.parametrize("seed", range(SEED, SEED + SCHEMAS // 4))
def test_protobuf(seed: int, compiled_proto: Decoder) -> None:
    source = random.Random(seed)
    leaf = (
        b"\x08\x05\x10\x03\x19"
        + b"\x01" * 8
        + b"\x25\0\0\x80\x3f\x2a\x03abc\x32\x02\xff\xfe\x38\x01\x42\x03\1\2\3\x4a\x01z"
    )
    whole = leaf + b"\x62" + bytes([len(leaf)]) + leaf + (b"\x5a" + bytes([len(leaf)]) + leaf) * 2
    whole += b"\x52" + bytes([len(leaf) + 5]) + b"\x0a\x01k\x12" + bytes([len(leaf)]) + leaf
    whole += b"\x7a\x02\x08\x05\x6a\x00\x72\x01o\x82\x01\x03\x1a\x01v\x8a\x01\x02\x08\x09\x92\x01\x02\0\1"
    before = psutil.Process().memory_info().rss
    check(compiled_proto, [spoiled(source, whole) for _ in range(ROWS)])
    assert grown(before) < MAX_GROWTH


@pytest.fixture(scope="module")
def compiled_proto() -> Decoder:
    return decoder_of(parse(Source(SchemaKind.PROTOBUF, PROTO)))


@pytest.mark.parametrize("seed", range(SEED, SEED + SCHEMAS // 4))
def test_json(seed: int) -> None:
    source = random.Random(seed)

    def value(depth: int) -> Any:
        kind = source.randrange(9 if depth < 4 else 6)
        if kind < 6:
            choices: list[Any] = [None, True, source.randint(-(2**63), 2**63), source.uniform(-1e9, 1e9), "é\n", ""]
            return choices[kind]
        if kind == 6:
            return [value(depth + 1) for _ in range(source.randint(0, 3))]
        return {source.choice("abcdé"): value(depth + 1) for _ in range(source.randint(0, 4))}

    payloads = []
    for _ in range(ROWS):
        text = json.dumps({"a": value(0), "b": value(0)}, ensure_ascii=source.random() < 0.5).encode()
        payloads.append(text if source.random() < 0.5 else spoiled(source, text))
    before = psutil.Process().memory_info().rss
    given = pa.array(payloads, pa.binary())
    shape = infer(given)
    found = decode_as(shape, given)
    found.array.validate(full=True)
    for row, payload in enumerate(payloads):
        if row not in found.errors and b"\\u" not in payload:
            json.loads(payload.removeprefix(b"\xef\xbb\xbf"))
    assert grown(before) < MAX_GROWTH
