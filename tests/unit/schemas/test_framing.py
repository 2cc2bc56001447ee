"""Schemas of records: by prefix, by header, by neither; messages of Protobuf files. Compared with one row at a time."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.schemas.framing import (
    MAX_INDEXES,
    VALUE_HEADER,
    SchemaRef,
    frames_of,
    message_frames,
    read_indexes,
    unframed,
)
from tests.support.promise import promise

GUIDS = [uuid.UUID(int=7), uuid.UUID(int=8)]
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))


def prefixed(number: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + payload


def by_guid(guid: uuid.UUID, indexes: bytes = b"") -> bytes:
    return b"\x01" + guid.bytes + indexes


def expected(payload: bytes | None, headers: list[dict[str, Any]] | None) -> tuple[SchemaRef, bytes] | str | None:
    """The schema and the bytes of one record, or what is wrong with it."""
    if payload is None:
        return None
    told = [pair["value"] for pair in headers or [] if pair["key"] == VALUE_HEADER]
    if told:
        content = told[-1]
        if content and content[0] == 1 and len(content) >= 17:
            return SchemaRef(guid=str(uuid.UUID(bytes=content[1:17]))), content[17:] + payload
        if content and content[0] == 0 and len(content) >= 5:
            return SchemaRef(struct.unpack(">I", content[1:5])[0]), content[5:] + payload
        return f"the header {VALUE_HEADER} names no schema"
    if len(payload) >= 5 and payload[0] == 0:
        return SchemaRef(struct.unpack(">I", payload[1:5])[0]), payload[5:]
    return SchemaRef(), payload


PAYLOADS = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.builds(prefixed, st.sampled_from([1, 2, 4_000_000_000]), st.binary(max_size=8)),
)
CONTENTS = st.one_of(
    st.none(),
    st.binary(max_size=6),
    st.builds(by_guid, st.sampled_from(GUIDS), st.sampled_from([b"", b"\x00", b"\x02\x02"])),
    st.builds(prefixed, st.sampled_from([1, 9]), st.just(b"")),
)
PAIR = st.fixed_dictionaries({"key": st.sampled_from([VALUE_HEADER, "other"]), "value": CONTENTS})
ROWS = st.lists(st.tuples(PAYLOADS, st.one_of(st.none(), st.lists(PAIR, max_size=3))), max_size=12)


@given(ROWS, st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_schemas_as_one_row_at_a_time(rows: list[tuple[bytes | None, list[dict[str, Any]] | None]], skip: int) -> None:
    payloads = pa.array([payload for payload, _ in rows], pa.binary()).slice(skip)
    headers = pa.array([given for _, given in rows], HEADERS).slice(skip)
    found = frames_of(payloads, headers, VALUE_HEADER)
    seen: dict[int, tuple[SchemaRef, bytes] | str] = dict(found.errors)
    for frame in found.frames:
        assert len(frame.rows) == len(frame.payloads) > 0
        assert list(frame.rows) == sorted(set(frame.rows.tolist()))
        for row, payload in zip(frame.rows.tolist(), frame.payloads.to_pylist(), strict=True):
            assert row not in seen
            seen[row] = (frame.schema, payload)
    wanted = {i: expected(*row) for i, row in enumerate(rows[skip:])}
    assert seen == {i: value for i, value in wanted.items() if value is not None}


@promise("T6")
def test_records_of_the_serializers_of_confluent() -> None:
    """The bytes that confluent-kafka writes for ids, GUIDs and messages."""
    guid = str(uuid.UUID(int=99))
    prefix = bytes.fromhex("0000000005040402")
    header = bytes.fromhex("0100000000000000000000000000000063040402")
    payloads = pa.array([prefix + b"body", b"body"], pa.binary())
    headers = pa.array([[], [{"key": VALUE_HEADER, "value": header}]], HEADERS)
    by_header, by_prefix = frames_of(payloads, headers, VALUE_HEADER).frames
    assert (by_prefix.schema, by_header.schema) == (SchemaRef(5), SchemaRef(guid=guid))
    assert (str(by_prefix.schema), str(by_header.schema), str(SchemaRef())) == ("id 5", f"GUID {guid}", "no id")
    for frame in (by_prefix, by_header):
        [message], errors = message_frames(frame.payloads)
        assert (message.indexes, message.payloads.to_pylist(), errors) == ((2, 1), [b"body"], {})


def test_messages_of_a_file() -> None:
    payloads = pa.array([b"\x00first", b"\x02\x04third", b"\x00", b"", b"\x04\x00", b"\x02\x04again"], pa.binary())
    found, errors = message_frames(payloads.slice(0))
    assert [(one.indexes, one.rows.tolist(), one.payloads.to_pylist()) for one in found] == [
        ((0,), [0, 2], [b"first", b""]),
        ((2,), [1, 5], [b"third", b"again"]),
    ]
    assert errors == dict.fromkeys([3, 4], "the indexes of a message are cut off")


@pytest.mark.parametrize(
    ("data", "flaw"),
    [
        (b"\x01", "-1 indexes"),
        (b"\x02\x01", "-1 as the index"),
        (bytes([0x80 | 0x02, 0x02]), f"at most {MAX_INDEXES}"),
        (b"\xff\xff\xff\xff\xff\xff", "cut off"),
    ],
)
def test_indexes_that_cannot_be_read(data: bytes, flaw: str) -> None:
    with pytest.raises(ValueError, match=flaw):
        read_indexes(data)


def test_rows_without_schemas() -> None:
    [frame] = unframed(pa.array([b"a", None, b"\x00\x00\x00\x00\x01b"], pa.binary())).frames
    assert (frame.schema.key, frame.rows.tolist()) == ("", [0, 2])
    assert frame.payloads.to_pylist() == [b"a", b"\x00\x00\x00\x00\x01b"]
    assert unframed(pa.nulls(3, pa.binary())).frames == unframed(pa.array([], pa.binary())).frames == []
