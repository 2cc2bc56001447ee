"""The record loops give the same as plain Python and compiled, on sound, mutated and random bytes."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.kernels import records, switch
from headwater.log.kernels.records import BAD_FIELD, BAD_LENGTH, BAD_OFFSET, CUT_SHORT, FLAWS, OK, WalkResult
from headwater.types import Buffer
from tests.support.batches import Rec, record, varint
from tests.support.promise import promise
from tests.support.soak import examples

PROMISES = ("K3",)

Walk = Callable[[Buffer, int, int, int], WalkResult]
plain = records.walk_records


@pytest.fixture(scope="module")
def compiled() -> Iterator[Walk]:
    before = switch.walk_records
    switch.compile_kernels()
    yield switch.walk_records
    switch.walk_records = before


blobs = st.none() | st.binary(max_size=20)
recs = st.lists(
    st.builds(
        Rec,
        blobs,
        blobs,
        st.integers(-(1 << 62), 1 << 62) | st.integers(-5, 5),
        st.lists(st.tuples(st.binary(max_size=5), blobs), max_size=3).map(tuple),
    ),
    max_size=8,
)


def encoded(wanted: list[Rec]) -> bytes:
    return b"".join(record(i, r, 0) for i, r in enumerate(wanted))


@promise("K3")
@settings(deadline=None)
@given(wanted=recs)
def test_sound_records(compiled: Walk, wanted: list[Rec]) -> None:
    """Smallest and largest timestamp, null keys; anywhere inside other bytes."""
    data = encoded(wanted)
    stamps = [r.timestamp for r in wanted] or [0]
    expected = (OK, min(stamps), max(stamps), sum(r.key is None for r in wanted))
    around = b"\xff" * 7 + data + b"\xff" * 7
    for walk in (plain, compiled):
        assert walk(data, 0, len(data), len(wanted)) == expected
        assert walk(around, 7, 7 + len(data), len(wanted)) == expected
        assert walk(memoryview(around), 7, 7 + len(data), len(wanted)) == expected


@promise("K3")
@settings(max_examples=examples(400), deadline=None)
@given(
    wanted=recs,
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 5),
    more=st.integers(-1, 1),
)
def test_mutated_records(
    compiled: Walk, wanted: list[Rec], changes: list[tuple[int, int]], cut: int, more: int
) -> None:
    data = bytearray(encoded(wanted))
    for at, byte in changes:
        if data:
            data[at % len(data)] = byte
    end = max(0, len(data) - cut)
    same(compiled, bytes(data), end, len(wanted) + more)


@promise("K3")
@settings(max_examples=examples(400), deadline=None)
@given(data=st.binary(max_size=60), count=st.integers(-1, 5))
def test_random_bytes(compiled: Walk, data: bytes, count: int) -> None:
    same(compiled, data, len(data), count)


def same(compiled: Walk, data: bytes, end: int, count: int) -> None:
    found = plain(data, 0, end, count)
    assert compiled(data, 0, end, count) == found
    assert found[0] in (OK, *FLAWS)
    assert all(-(1 << 63) <= number < 1 << 63 for number in found)
    if found[0] != OK:
        assert found[1:] == (0, 0, 0)


def one(timestamp: bytes) -> bytes:
    body = b"\0" + timestamp + varint(0) + varint(-1) + varint(-1) + varint(0)
    return varint(len(body)) + body


@promise("K3")
@pytest.mark.parametrize("last", [0, 1, 2, 3, 0x7F, 0x80, 0xFF])
def test_the_longest_varint(compiled: Walk, last: int) -> None:
    """Ten bytes hold 64 bits; what says more is refused by both and overflows in neither."""
    data = one(b"\xff" * 9 + bytes([last]))
    found = plain(data, 0, len(data), 1)
    assert compiled(data, 0, len(data), 1) == found
    assert (found[0] == OK) == (last <= 1)
    if last == 1:
        assert found[1] == -(1 << 63)


@promise("K3")
@pytest.mark.parametrize(
    ("data", "count", "status"),
    [
        (b"", 0, OK),
        (b"", 1, CUT_SHORT),
        (b"\0", 0, BAD_LENGTH),
        (varint(3) + b"\0", 1, CUT_SHORT),
        (record(1, Rec(b"x"), 0), 1, BAD_OFFSET),
        (varint(7) + b"\0\0\0\1\1\0\0", 1, BAD_LENGTH),
        (varint(6) + b"\0\0\0" + varint(9) + b"\1\0", 1, BAD_FIELD),
        (varint(6) + b"\0\0\0\1" + varint(9) + b"\0", 1, BAD_FIELD),
        (varint(6) + b"\0\0\0\1\1" + varint(9), 1, BAD_FIELD),
        (varint(7) + b"\0\0\0\1\1\2" + varint(9), 1, BAD_FIELD),
        (varint(8) + b"\0\0\0\1\1\2\0" + varint(9), 1, BAD_FIELD),
        (varint(8) + b"\0\0\0\1\1\2\0" + varint(-2), 1, BAD_FIELD),
        (varint(8) + b"\0\0\0\1\1\2\0\1", 1, OK),
    ],
)
def test_each_flaw(compiled: Walk, data: bytes, count: int, status: int) -> None:
    for walk in (plain, compiled):
        assert walk(data, 0, len(data), count)[0] == status


class _Counted(bytes):
    """Bytes that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, at):  # type: ignore[no-untyped-def,override]
        type(self).looks += 1
        return super().__getitem__(at)


@promise("K3")
@given(recs, st.binary(max_size=80), st.integers(0, 60), st.integers(0, (1 << 31) - 1))
def test_no_byte_is_read_twice(wanted: list[Rec], noise: bytes, at: int, count: int) -> None:
    """Whatever a header claims, the work is bounded by the bytes that there are."""
    sound = encoded(wanted)
    for data in (sound, sound[:at] + noise + sound[at:], noise):
        held = _Counted(data)
        _Counted.looks = 0
        plain(held, 0, len(held), count)
        assert _Counted.looks <= len(held)
