"""Payloads that take more steps than their size allows are bad rows, in every format; others cost what they did."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.schemas.decoding.by_schema import Decoder, decoder_of
from headwater.schemas.decoding.json_texts import Texts
from headwater.schemas.decoding.kernels import avro, json_values, protobuf, slots
from headwater.schemas.decoding.kernels import json as json_kernel
from headwater.schemas.parsing import SchemaKind, Source, parse
from headwater.schemas.shapes import LONG, Field, struct
from tests.support.avro_samples import Samples, varint

COSTLY = "for the size of the payload and of the schema"
Counted = Callable[[], tuple[int, int]]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """The steps of the last run of a loop, and the most that its rows may take."""
    found = [(0, 0)]
    for module, name in ((avro, "read_payloads"), (protobuf, "read_payloads"), (json_kernel, "read_texts")):
        loop = getattr(module, name)

        def run(data: Any, offsets: Any, front: int, *rest: Any, loop: Any = loop) -> int:
            before = int(rest[-1][slots.STEPS])
            result: int = loop(data, offsets, front, *rest)
            rows = len(offsets) - 1
            most = len(data) * slots.STEPS_PER_BYTE + rows * int(rest[-1][slots.SPARE])
            found[0] = int(rest[-1][slots.STEPS]) - before, most
            return result

        monkeypatch.setattr(module, name, run)
    yield lambda: found[0]


def decoder(tree: Any, kind: SchemaKind = SchemaKind.AVRO) -> Decoder:
    return decoder_of(parse(Source(kind, tree if isinstance(tree, str) else json.dumps(tree))))


def record(name: str, *kinds: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)],
    }


def doubling(depth: int, *more: Any) -> dict[str, Any]:
    """A type of which each level has the one below it twice. The lowest has no bytes."""
    inner: Any = "null"
    for level in range(depth):
        inner = record(f"L{level}", inner, inner if level == 0 else f"L{level - 1}")
    return record("Top", inner, *more)


def payloads(*values: bytes) -> pa.Array:
    return pa.array(values, pa.binary())


@pytest.mark.parametrize("depth", [30, 60])
def test_a_value_of_a_billion_parts_without_bytes_is_a_bad_row(depth: int, counted: Counted) -> None:
    tree = doubling(depth, "long")
    decoded = decoder(tree).decode(payloads(b"\x02", b"", b"\x02"))
    assert list(decoded.errors) == [0, 1, 2] and all(COSTLY in error for error in decoded.errors.values())
    assert decoded.array.null_count == 3
    steps, most = counted()
    assert 0 < steps <= most < 100_000


def test_a_list_of_values_with_many_parts_and_no_bytes_is_a_bad_row(counted: Counted) -> None:
    """Each block of a list may have as many elements without bytes as there are bytes behind it."""
    blocks = b"".join(varint(64) for _ in range(500)) + varint(0)
    for items, flaw in (("null", False), (doubling(6), True), (doubling(40), True)):
        lists = record("R", ["null", {"type": "array", "items": ["null", {"type": "array", "items": items}]}])
        own = varint(1) + varint(1) + varint(1) + blocks + varint(0)
        steps_of = decoder(lists).decode(payloads(own, varint(0)))
        assert (0 in steps_of.errors) == flaw and 1 not in steps_of.errors
        steps, most = counted()
        assert steps <= most


def test_blocks_of_a_list_that_is_passed_over_count_with_all_elements(counted: Counted) -> None:
    deep: Any = {"type": "array", "items": "null"}
    for _ in range(45):  # below the levels that have columns
        deep = {"type": "array", "items": deep}
    rows = varint(1) * 45
    many = rows + b"".join(varint(64) for _ in range(40)) + varint(0) * 46
    few = rows + varint(64) + varint(0) * 46
    decoded = decoder(record("R", deep)).decode(payloads(many, few))
    assert decoded.errors == {}
    far = rows + b"".join(varint(64 + 3_000 - at) for at in range(1, 1_000)) + varint(0) * 2_000
    decoded = decoder(record("R", deep)).decode(payloads(few, far))
    assert list(decoded.errors) == [1] and COSTLY in decoded.errors[1]
    steps, most = counted()
    assert steps <= most


def test_small_values_without_bytes_are_decoded(counted: Counted) -> None:
    tree = record("R", doubling(5), {"type": "array", "items": "null"}, "long")
    decoded = decoder(tree).decode(payloads(varint(64) + varint(0) + varint(7)))
    assert not decoded.errors
    [row] = decoded.array.to_pylist()
    assert row["f2"] == 7 and len(row["f1"]) == 64


@pytest.mark.parametrize("digits", [39, 1_000])
def test_a_decimal_that_would_take_the_square_of_its_length_is_a_bad_row(digits: int) -> None:
    """Decimals of more digits than a column of numbers has become text."""
    tree = record("R", {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 2})
    long, short = b"\x7f" * 1_000_000, (12345).to_bytes(3, "big")
    decoded = decoder(tree).decode(payloads(varint(len(long)) + long, varint(len(short)) + short))
    assert list(decoded.errors) == [0] and "a number has too many bits" in decoded.errors[0]
    assert decoded.array.to_pylist()[1] == {"f0": "123.45"}


def test_decimals_of_a_fixed_size_that_is_too_large_are_bad_rows() -> None:
    def of(size: int) -> Decoder:
        return decoder(
            record(
                "R", {"type": "fixed", "name": "F", "size": size, "logicalType": "decimal", "precision": 60, "scale": 1}
            )
        )

    assert list(of(2_000).decode(payloads(b"\x00" * 2_000)).errors) == [0]
    assert of(30).decode(payloads(b"\x00" * 29 + b"\x07")).array.to_pylist() == [{"f0": "0.7"}]


@pytest.mark.parametrize("seed", range(8))
def test_steps_stay_below_their_bound_whatever_the_bytes(seed: int, counted: Counted) -> None:
    samples = Samples(seed)
    tree = samples.record()
    good = [samples.value(tree)[0] for _ in range(20)]
    wrong = [samples.source.randbytes(samples.source.randrange(60)) for _ in range(60)]
    small = [bytes(samples.source.randrange(4) for _ in range(samples.source.randrange(60))) for _ in range(60)]
    decoded = decoder(tree).decode(payloads(*good, *wrong, *small))
    assert not any(COSTLY in decoded.errors.get(row, "") for row in range(20))
    steps, most = counted()
    assert 0 < steps <= most


def test_a_message_that_comes_again_and_again_is_begun_once(counted: Counted) -> None:
    fields = " ".join(f"int32 f{at} = {at};" for at in range(1, 1_001))
    text = f'syntax = "proto3"; message R {{ M m = 1; int32 x = 2; }} message M {{ {fields} }}'
    row = b"\x0a\x00" * 1_000 + b"\x10\x07"
    decoded = decoder(text, SchemaKind.PROTOBUF).decode(payloads(row))
    assert not decoded.errors
    [value] = decoded.array.to_pylist()
    assert value["x"] == 7 and value["m"]["f1"] == 0 and value["m"]["f1000"] == 0
    steps, _ = counted()
    assert steps == 1_000


def test_messages_in_a_list_are_counted_with_their_fields(counted: Counted) -> None:
    fields = " ".join(f"int32 f{at} = {at};" for at in range(1, 1_001))
    text = f'syntax = "proto3"; message R {{ repeated M m = 1; }} message M {{ {fields} }}'
    decoded = decoder(text, SchemaKind.PROTOBUF).decode(payloads(b"\x0a\x00" * 50, b"\x0a\x00" * 400))
    assert list(decoded.errors) == [1] and "too many messages" in decoded.errors[1]
    assert len(decoded.array.to_pylist()[0]["m"]) == 50
    steps, most = counted()
    assert steps <= most


def test_members_of_a_oneof_that_take_turns_are_counted(counted: Counted) -> None:
    members = " ".join(f"int32 f{at} = {at};" for at in range(1, 2_001))
    text = f'syntax = "proto3"; message R {{ oneof one {{ {members} }} }}'
    turns = (b"\x08\x01" + b"\x10\x01") * 100
    decoded = decoder(text, SchemaKind.PROTOBUF).decode(payloads(b"\x08\x01\x10\x05", turns))
    assert list(decoded.errors) == [1] and "too many messages" in decoded.errors[1]
    assert decoded.array.to_pylist()[0]["f2"] == 5
    steps, most = counted()
    assert steps <= most


def test_names_that_share_a_place_in_the_table_are_counted(counted: Counted) -> None:
    source, size, count = random.Random(3), 1_024, 500

    def place(name: str) -> int:
        raw = np.frombuffer(name.encode(), np.uint8)

        return int(json_kernel.hash_name(raw, 0, len(raw), 0)) & (size - 1)

    start = place("a")
    names: list[str] = []
    while len(names) < count:
        name = f"{source.randrange(1 << 40):x}"
        if (place(name) - start) % size < 250:
            names.append(name)
    texts = Texts(struct(*(Field(name, LONG) for name in names)))
    assert len(texts.table) == size
    one, many = b'{"a":1}', b"{" + b",".join([b'"a":1'] * 200) + b"}"
    decoded = texts.decode(payloads(one, many, b'{"%s":5}' % names[-1].encode()))
    assert list(decoded.errors) == [1] and json_values.FLAWS[json_values.COSTLY] in decoded.errors[1]
    assert decoded.array.to_pylist()[2][names[-1]] == 5
    steps, most = counted()
    assert steps <= most
