"""Spoiled WAL objects, checkpoints and ledger records: every reader says that they are corrupt, and nothing else."""

from __future__ import annotations

import os
import random
import struct
import time
from collections import Counter

import psutil
import pytest
from crc32c import crc32c

from headwater.client.records import decode_batches
from headwater.errors import Damaged, HeadwaterError
from headwater.log.batch import Batch, join_patched, offsets_of, record_timestamps, split_batches, with_append_time
from headwater.log.wal import format as wal
from headwater.log.wal.cache import ReadWal
from headwater.replica.checkpoint import decode_checkpoint, encode_checkpoint
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, WalId
from tests.fuzz.corpus import SPOILERS
from tests.support.batches import Rec, batch

SEED = int(os.environ.get("HEADWATER_TEST_SEED", "1"))
OBJECTS = int(os.environ.get("HEADWATER_TEST_OBJECTS", "20000"))
OPENED_LIMIT = 1 << 20
MAX_GROWTH = 200 << 20
NOW_MS = 1_700_000_000_000


def sound_object(rng: random.Random) -> bytes:
    chunks = []
    for stream in sorted(rng.sample(range(1, 1000), rng.randint(1, 4))):
        batches = []
        for _ in range(rng.randint(1, 3)):
            records = [Rec(rng.randbytes(rng.randrange(30)), timestamp=NOW_MS + i) for i in range(rng.randint(1, 5))]
            data = batch(records, codec=rng.choice((0, 0, 1, 2, 3, 4)))
            batches.append(Batch(data, len(records), NOW_MS, NOW_MS + len(records) - 1, -1, -1, -1))
        chunks.append((stream, batches))
    image = wal.build(WalId(rng.randrange(1, 100), rng.randrange(1, 100)), Domain(1), NOW_MS, NOW_MS, chunks)
    return b"".join(image.pieces)


def spoiled(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(SPOILERS)(rng, changed)
    return bytes(changed)


def with_footer(data: bytes) -> bytes:
    """The same with a CRC that fits, so that the checks behind the CRC are met too."""
    return data[:-4] + struct.pack(">I", crc32c(data[:-4])) if len(data) > 4 else data


def read_on(data: bytes, parsed: wal.WalObject) -> None:
    """What a broker does with an object that passed, and a client with what the broker sends."""
    cached = ReadWal(data)
    for chunk in parsed.chunks:
        batches = cached.batches(chunk.position, chunk.position + chunk.length, chunk.records)
        for one in batches:
            offsets_of(one)
            with_append_time(one, NOW_MS)
        joined = join_patched(batches, 0)
        split_batches(joined)
        for found in decode_batches(joined, OPENED_LIMIT):
            assert found.next_offset >= found.base_offset


def verdict(rng: random.Random, data: bytes) -> str:
    try:
        parsed = wal.parse(data)
    except Damaged:
        return "refused"
    try:
        read_on(data, parsed)
    except HeadwaterError:
        return "refused by a reader"
    return "read"


def test_no_object_breaks_a_reader(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(SEED)
    pool = [sound_object(rng) for _ in range(200)]
    assert {verdict(rng, data) for data in pool} == {"read"}
    me, outcomes, longest = psutil.Process(), Counter[str](), 0.0
    before = me.memory_info().rss
    for n in range(OBJECTS):
        data = rng.randbytes(rng.randrange(300)) if n % 20 == 0 else spoiled(rng, pool[n % len(pool)])
        if n % 4:
            data = with_footer(data)
        began = time.perf_counter()
        try:
            outcomes[verdict(rng, data)] += 1
        except Exception as error:
            raise AssertionError(f"seed {SEED}, object {n}: {error!r}; {data.hex()}") from error
        longest = max(longest, time.perf_counter() - began)
    growth = me.memory_info().rss - before
    with capsys.disabled():
        print(f"\n{OBJECTS} WAL objects: {dict(outcomes)}, slowest {longest * 1000:.0f} ms, grew {growth >> 20} MiB")
    assert outcomes["refused"] > OBJECTS // 4 and sum(outcomes.values()) == OBJECTS
    assert growth < MAX_GROWTH
    assert longest < 5


def test_no_object_breaks_a_look_up_by_time() -> None:
    rng = random.Random(SEED)
    pool = [sound_object(rng) for _ in range(200)]
    for n in range(2_000):
        data = with_footer(spoiled(rng, pool[n % len(pool)]))
        try:
            for chunk in wal.parse(data).chunks:
                for one in wal.batches_between(data, chunk.position, chunk.position + chunk.length):
                    for _ in record_timestamps(one, OPENED_LIMIT):
                        pass
        except HeadwaterError:
            continue


def test_runs_outside_an_object_are_refused() -> None:
    rng = random.Random(SEED)
    data = sound_object(rng)
    for _ in range(2_000):
        start, end = rng.randint(-5, len(data) + 5), rng.randint(-5, len(data) + 5)
        try:
            for one in wal.batches_between(data, start, end):
                assert len(one) <= len(data)
        except Damaged:
            continue


def test_no_name_breaks_the_sweep() -> None:
    rng = random.Random(SEED)
    for _ in range(2_000):
        name = "".join(rng.choice("0123456789-./wox²٣") for _ in range(rng.randrange(20)))
        for path in (name, f"{name}.wo", f"1-{name}.wo"):
            found = wal.id_of_path(path)
            assert found is None or path.endswith(wal.SUFFIX)


def test_no_checkpoint_breaks_a_start() -> None:
    rng = random.Random(SEED)
    sound = encode_checkpoint(StreamsState(Domain(1)))
    for n in range(3_000):
        data = spoiled(rng, sound)
        if n % 2 and len(data) > 23:
            data = data[:19] + struct.pack(">I", crc32c(data[23:])) + data[23:]
        try:
            decode_checkpoint(data, StreamsState(Domain(1)))
        except HeadwaterError:
            continue
