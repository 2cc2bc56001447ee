"""The digest of rows does not depend on order and cut, and every change of a log column changes it."""

import itertools
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.segment.digest import MASK, digest
from headwater.log.segment.schema import segment_schema
from headwater.log.segment.write import decode_runs
from tests.support.batches import Rec, batch
from tests.support.promise import promise
from tests.support.soak import examples

PROMISES = ("T5",)

blobs = st.none() | st.binary(max_size=90) | st.integers(0, 300).map(lambda n: b"x" * n)
headers = st.none() | st.lists(st.fixed_dictionaries({"key": st.text(max_size=9), "value": blobs}), max_size=3)
long, int32 = st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 31), (1 << 31) - 1)
rows = st.fixed_dictionaries(
    {
        "partition": int32, "offset": long, "timestamp_ms": long, "timestamp": st.none(), "key": blobs, "value": blobs,
        "headers": headers, "headers_raw": blobs, "attributes": int32, "producer_id": long, "producer_epoch": int32,
        "sequence": int32,
    }
)  # fmt: skip
LOGGED = [name for name in segment_schema().names if name != "timestamp"]


def of(found: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(found, schema=segment_schema())


@promise("T5")
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(rows, max_size=12), st.data())
def test_order_and_cut_do_not_matter(found: list[dict[str, Any]], data: st.DataObject) -> None:
    """Slices of one batch, batches of their own, and any order have the same sum."""
    total, whole = digest(of(found)), of(found)
    assert 0 <= total <= MASK
    assert total == sum(digest(of([row])) for row in found) & MASK
    cuts = sorted({0, len(found), *data.draw(st.lists(st.integers(0, len(found)), max_size=4))})
    pieces = [whole.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
    assert total == sum(map(digest, pieces)) & MASK
    assert total == digest(of(data.draw(st.permutations(found))))
    assert total == digest(pa.concat_batches([whole, *pieces]).slice(len(found)))


@promise("T5")
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(rows, min_size=1, max_size=4), st.sampled_from(LOGGED), st.integers(0, 3), rows)
def test_every_change_changes_it(found: list[dict[str, Any]], name: str, at: int, other: dict[str, Any]) -> None:
    """Of any log column of any row; the timestamp of tables follows from that of the log."""
    row = at % len(found)
    changed = [*found[:row], {**found[row], name: other[name]}, *found[row + 1 :]]
    assert (digest(of(changed)) == digest(of(found))) == (found[row][name] == other[name])


@promise("T5")
@settings(max_examples=examples(60), deadline=None)
@given(st.binary(min_size=1, max_size=400), st.data())
def test_no_byte_is_passed_over(value: bytes, data: st.DataObject) -> None:
    """A bit of a value, wherever it is, and a byte more or less."""
    at, bit = data.draw(st.integers(0, len(value) - 1)), data.draw(st.integers(0, 7))
    spoilt = value[:at] + bytes([value[at] ^ 1 << bit]) + value[at + 1 :]
    found = [digest(of([row(value=one)])) for one in (value, spoilt, value[:-1], value + b"\0", None)]
    assert len(set(found)) == len(found)


def row(**changes: Any) -> dict[str, Any]:
    plain = dict.fromkeys(("partition", "offset", "timestamp_ms", "attributes"), 0)
    plain |= dict.fromkeys(("producer_id", "producer_epoch", "sequence"), -1)
    return {**plain, "timestamp": None, "key": None, "value": None, "headers": None, "headers_raw": None, **changes}


@promise("T5")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (row(key=b"a"), row(value=b"a")),
        (row(key=b"ab", value=b"c"), row(key=b"a", value=b"bc")),
        (row(key=b""), row()),
        (row(headers=[]), row()),
        (row(headers=[{"key": "a", "value": None}]), row(headers=[{"key": "a", "value": b""}])),
        (row(headers=[{"key": "a", "value": b"b"}]), row(headers=[{"key": "ab", "value": b""}])),
        (row(partition=1), row(attributes=1)),
        (row(producer_epoch=0), row(sequence=0)),
    ],
)
def test_what_looks_alike_is_told_apart(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Null and empty, and bytes on either side of a border."""
    assert digest(of([one])) != digest(of([other]))


@promise("T5")
def test_two_rows_cannot_swap_values() -> None:
    """A sum over cells would not notice it."""
    a, b = row(offset=1, value=b"a"), row(offset=2, value=b"b")
    assert digest(of([a, b])) != digest(of([{**a, "value": b"b"}, {**b, "value": b"a"}]))


@promise("T5")
def test_it_is_the_same_in_every_build() -> None:
    """Digests are in the ledger, so the hash never changes."""
    rows_of = [
        row(offset=i, key=b"k", value=bytes(range(200)), headers=[{"key": "h", "value": b"v"}]) for i in range(3)
    ]
    assert digest(of(rows_of)) == EXPECTED


EXPECTED = 15574733681121417981


@promise("T5")
def test_decoded_and_read_rows_have_the_same() -> None:
    """Rows from the WAL are laid out in memory otherwise than those of a file."""
    run = batch([Rec(b"v" * 99, b"k", headers=((b"h", b"1"),)), Rec(None), Rec(b"w", headers=((b"\xff", b""),))])
    data = struct.pack(">I", len(run)) + run
    [piece] = decode_runs(3, [(data, 7, -1)], 7, 1 << 20)
    assert digest(piece) == digest(of(piece.to_pylist())) == digest(pa.concat_batches([piece, piece]).slice(3))
