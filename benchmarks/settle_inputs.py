"""The records of the benchmark of settling: made once, then used for every master, stream count and repetition."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from functools import cache

from benchmarks.segments import START_MS, Case
from headwater.client.records import Record, encode_batch
from headwater.log.batch import Batch
from headwater.wire.codecs import NONE

JSON_CASES = [
    Case("JSON, 120 B, batches of 1,000", 120, 1_000, NONE),
    Case("JSON, 1 KB, batches of 1,000", 1_000, 1_000, NONE),
]
OBJECT_BYTES = 4 << 20
SMALL_BATCH_SHARE = 4
"""Batches of one record take so much longer to make that there are fewer of them."""


@dataclass(frozen=True, slots=True)
class Input:
    """The batches of one case, as groups that make one WAL object each."""

    case: Case
    rows: int
    objects: list[list[Batch]]


def rows_of(case: Case, megabytes: int) -> int:
    """How many records a case has, a whole number of batches."""
    rows = megabytes * 1_000_000 // case.value_bytes // (SMALL_BATCH_SHARE if case.batch_rows == 1 else 1)
    return max(rows - rows % case.batch_rows, case.batch_rows)


@cache
def make_input(case: Case, rows: int) -> Input:
    """Values of chance and padding, or JSON. No two are alike, or Parquet would keep them as a dictionary."""
    chance, half = random.Random(1), case.value_bytes // 2
    padding = b"x" * (case.value_bytes - half)
    objects: list[list[Batch]] = [[]]
    size = 0
    for at in range(0, rows, case.batch_rows):
        numbers = range(at, at + case.batch_rows)
        if case in JSON_CASES:
            values = [json_value(i, case.value_bytes) for i in numbers]
        else:
            values = [chance.randbytes(half) + padding for _ in numbers]
        records = [Record(0, START_MS + i, key(i), value) for i, value in zip(numbers, values, strict=True)]
        data = encode_batch(records, codec=case.codec)
        if size + len(data) > OBJECT_BYTES:
            objects.append([])
            size = 0
        size += len(data)
        last = records[-1].timestamp
        objects[-1].append(Batch(data, case.batch_rows, records[0].timestamp, last, -1, -1, -1))
    return Input(case, rows, objects)


def key(number: int) -> bytes:
    return b"%012d" % number


def json_value(number: int, size: int) -> bytes:
    """An order as JSON, of exactly this size; no two are alike, and half of their text is chance."""
    start = b'{"id":%d,"customer":"customer-%06d","amount":%d.%02d,"status":"shipped","note":"' % (
        number, number * 7919 % 1_000_000, number % 1_000, number % 100,
    )  # fmt: skip
    left = size - len(start) - 2
    return start + hashlib.shake_128(key(number)).hexdigest(left // 2 + 1)[:left].encode() + b'"}'
