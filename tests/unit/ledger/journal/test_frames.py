"""The bytes of a journal: what was packed is read again, and nothing else is taken for it."""

from __future__ import annotations

import dataclasses

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.ledger.contract import Image, Pointer
from headwater.ledger.journal import frames
from headwater.ledger.journal.frames import DomainOrigin, FileHead, Kind, OtherFormat
from headwater.types import Position

PROMISES = ("M1",)

NUMBERS = st.integers(0, 2**63)
POINTERS = st.none() | st.builds(
    lambda at, path, older: Pointer(Position(at), path, older, 7),
    NUMBERS, st.text(max_size=100), st.none() | st.tuples(NUMBERS.map(Position), st.text(max_size=10)),
)  # fmt: skip
ORIGINS = st.builds(
    frames.Origin, NUMBERS, NUMBERS,
    st.dictionaries(st.integers(0, 9), st.builds(DomainOrigin, NUMBERS, NUMBERS, POINTERS), max_size=9),
)  # fmt: skip
HEADS = st.builds(FileHead, st.binary(min_size=16, max_size=16), NUMBERS, NUMBERS, NUMBERS, st.just(0), ORIGINS)


@settings(max_examples=30)
@given(HEADS, st.binary(max_size=100))
def test_a_file_header(head: FileHead, behind: bytes) -> None:
    head = frames.sized(head)
    data = frames.encode_file_head(head)
    assert len(data) == head.size and head.size % frames.PAGE == 0
    assert frames.decode_file_head(data + behind) == head
    assert frames.decode_file_head(data[:-1]) is None


@given(HEADS, st.data())
def test_a_file_header_with_a_wrong_bit(head: FileHead, data: st.DataObject) -> None:
    bits = bytearray(frames.encode_file_head(frames.sized(head)))
    at = data.draw(st.integers(0, len(bits) * 8 - 1))
    bits[at // 8] ^= 1 << at % 8
    assert frames.decode_file_head(bytes(bits)) is None


def test_another_format() -> None:
    head = frames.sized(FileHead(bytes(16), 1, 2, 3, 0, frames.Origin(0, 0, {})))
    other = bytearray(frames.encode_file_head(head))
    other[6:7] = b"2"
    other[52:56] = bytes(4)
    other[52:56] = crc32c(bytes(other)).to_bytes(4, "big")
    with pytest.raises(OtherFormat) as raised:
        frames.decode_file_head(bytes(other))
    assert raised.value.found == 2


def test_a_header_that_is_too_long() -> None:
    pointer = Pointer(Position(1), "x" * frames.MAX_FILE_HEAD)
    with pytest.raises(ValueError, match="may have"):
        frames.sized(FileHead(bytes(16), 1, 2, 3, 0, frames.Origin(0, 0, {1: DomainOrigin(1, 0, pointer)})))


def image(epoch: int, sequence: int, body: bytes) -> Image:
    crc = crc32c(body)
    return Image(epoch, sequence, [body, crc.to_bytes(4, "big")], len(body) + 4, crc)


IMAGES = st.lists(st.builds(image, NUMBERS, NUMBERS, st.binary(max_size=5_000)), max_size=3)


@given(
    NUMBERS, st.sampled_from(Kind), NUMBERS, NUMBERS, st.integers(0, 9), NUMBERS, st.binary(max_size=9_000),
    st.binary(max_size=9_000), IMAGES,
)  # fmt: skip
def test_a_frame(
    salt: int, kind: Kind, number: int, synced: int, domain: int, position: int, record: bytes, echo: bytes,
    images: list[Image],
) -> None:  # fmt: skip
    pieces, head, repeated = frames.encode_frame(salt, kind, number, synced, domain, position, record, echo, images)
    data = b"".join(pieces)
    assert len(data) == head.size and head.size % frames.PAGE == 0
    assert frames.decode_head(salt, data) == head
    assert (head.kind, head.number, head.synced, head.domain, head.position) == (kind, number, synced, domain, position)
    assert frames.record_in(head, data) == record and frames.echo_in(head, data) == echo
    assert frames.decode_head(salt ^ 1, data) is None, "a frame of another life of the file"
    assert frames.decode_head(salt, repeated) == head and frames.record_in(head, repeated) == record
    for row, written in zip(head.images, images, strict=True):
        assert (row.epoch, row.sequence, row.size, row.crc) == (
            written.epoch,
            written.sequence,
            written.size,
            written.crc,
        )
        found = data[row.offset : row.offset + row.size]
        assert found == b"".join(written.pieces) and frames.is_image(row, found)


@given(st.binary(max_size=300), st.binary(max_size=300), IMAGES, st.data())
def test_a_frame_with_a_wrong_bit(record: bytes, echo: bytes, images: list[Image], data: st.DataObject) -> None:
    """Each part has a checksum of its own."""
    pieces, head, _ = frames.encode_frame(5, Kind.RECORD, 7, 6, 1, 3, record, echo, images)
    bits = bytearray(b"".join(pieces))
    at = data.draw(st.integers(0, (head.told_bytes + sum(row.size for row in head.images)) * 8 - 1))
    bits[at // 8] ^= 1 << at % 8
    wrong = bytes(bits)
    if at // 8 < head.own_bytes:
        assert frames.decode_head(5, wrong) is None
        return
    assert frames.decode_head(5, wrong) == head
    sound = [
        frames.record_in(head, wrong) == record,
        frames.echo_in(head, wrong) == echo,
        *(frames.is_image(row, wrong[row.offset : row.offset + row.size]) for row in head.images),
    ]
    ends = [head.own_bytes + len(record), head.told_bytes, *(row.offset + row.size for row in head.images)]
    assert sound.index(False) == next(i for i, end in enumerate(ends) if at // 8 < end) and sound.count(False) == 1


def test_too_many_images() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        frames.encode_frame(
            5, Kind.RECORD, 7, 6, 1, 3, b"", b"", [image(1, i, b"") for i in range(frames.MAX_IMAGES + 1)]
        )
    long = Image(1, 1, [], frames.MAX_IMAGES_BYTES + 1, 0)
    with pytest.raises(ValueError, match="do not fit"):
        frames.encode_frame(5, Kind.RECORD, 7, 6, 1, 3, b"", b"", [long])


@pytest.mark.parametrize(("pieces", "size"), [([], 0), ([b"abc"], 3), ([b"abc", b"crc."], 6), ([b"abc", b"crc."], 8)])
def test_an_image_that_no_reader_would_take(pieces: list[bytes], size: int) -> None:
    """It is refused before it is written: its frame would be taken for damaged, and end the journal."""
    with pytest.raises(ValueError, match="image 2 does not have"):
        frames.encode_frame(5, Kind.RECORD, 7, 6, 1, 3, b"", b"", [image(1, 1, b""), Image(1, 2, pieces, size, 0)])


@given(st.binary(max_size=200))
def test_other_bytes(data: bytes) -> None:
    assert frames.decode_head(1, data) is None
    assert frames.decode_head(1, frames.FRAME_MAGIC + data) is None
    assert frames.decode_file_head(b"HWTRJF" + data) is None


def test_headers_are_values() -> None:
    _, head, _ = frames.encode_frame(5, Kind.SEAL, 7, 6, 1, 3, b"", b"")
    assert dataclasses.replace(head) == head
