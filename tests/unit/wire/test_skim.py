"""Unknown tagged fields are removed from requests, in one copy however many there are."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from headwater.wire.messages import decode_request, read_start, request_type
from headwater.wire.skim import skim
from tests.support.promise import promise

PROMISES = ("K1", "S4")

METADATA, VERSION = 3, 12
NULL_ID = bytes(16)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tags(fields: list[bytes]) -> bytes:
    """Tagged fields that no version knows."""
    return varint(len(fields)) + b"".join(varint(100 + i) + varint(len(f)) + f for i, f in enumerate(fields))


def metadata(topics: list[tuple[str, list[bytes]]], header: list[bytes], body: list[bytes]) -> memoryview:
    """A Metadata request that names topics, with unknown tagged fields in all places that have any."""
    frame = struct.pack(">hhih", METADATA, VERSION, 7, -1) + tags(header) + varint(len(topics) + 1)
    for name, unknown in topics:
        frame += NULL_ID + varint(len(name) + 1) + name.encode() + tags(unknown)
    return memoryview(frame + b"\x01\x00" + tags(body))


fields = st.lists(st.binary(max_size=5), max_size=4)


@promise("K1")
@given(st.lists(st.tuples(st.text("abc", min_size=1, max_size=4), fields), max_size=6), fields, fields)
def test_what_is_known_stays(topics: list[tuple[str, list[bytes]]], header: list[bytes], body: list[bytes]) -> None:
    """The request is the one without the unknown fields, byte for byte."""
    clean = skim(request_type(METADATA, VERSION), metadata(topics, header, body))
    assert clean == metadata([(name, []) for name, _ in topics], [], [])
    assert [t.name for t in decode_request(read_start(clean), clean)[1].topics] == [name for name, _ in topics]


@promise("S4")
def test_a_request_of_nothing_but_unknown_fields() -> None:
    """Bytes are copied once, not once a field: four megabytes of them held the event loop for 20 seconds."""
    count, unknown = 60_000, b"\x01" + varint(100) + varint(60) + b"x" * 60
    entry = NULL_ID + b"\x02t" + unknown
    frame = struct.pack(">hhih", METADATA, VERSION, 7, -1) + b"\x00" + varint(count + 1) + entry * count
    clean = skim(request_type(METADATA, VERSION), memoryview(frame + b"\x01\x00\x00"))
    assert len(clean) == len(frame) + 3 - (len(unknown) - 1) * count
