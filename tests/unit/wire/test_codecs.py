"""Kafka's codecs, ours and other encoders', opened within a limit."""

import gzip
import struct
import tracemalloc

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import BadInput, ConfigError, CorruptBatch, TooLarge, UnsupportedBatch
from headwater.wire.codecs import GZIP, LZ4, NAMES, NONE, SNAPPY, WRITTEN, ZSTD, compress, decompress, written_codec
from tests.support.batches import COMPRESS, xerial
from tests.support.promise import promise

PROMISES = ("K3",)

LIMIT = 1 << 20
PACKED = [GZIP, SNAPPY, LZ4, ZSTD]


def xerial_blocks(data: bytes, size: int = 32 << 10) -> bytes:
    """As the Java client writes it: a header, then blocks of 32 KiB."""
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), size):
        block = snappy.compress(data[at : at + size])
        out += struct.pack(">i", len(block)) + block
    return out


FOREIGN = {
    "gzip": (GZIP, gzip.compress),
    "gzip in members": (
        GZIP,
        lambda data: gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :]),
    ),
    "snappy plain": (SNAPPY, snappy.compress),
    "snappy of java": (SNAPPY, xerial_blocks),
    "snappy in small blocks": (SNAPPY, lambda data: xerial_blocks(data, 100)),
    "lz4": (LZ4, lz4.frame.compress),
    "lz4 in small blocks": (
        LZ4,
        lambda data: lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False),
    ),
    "lz4 with a checksum": (LZ4, lambda data: lz4.frame.compress(data, content_checksum=True)),
    "zstd": (ZSTD, zstandard.compress),
    "zstd without a size": (ZSTD, lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data)),
}


@promise("K3")
@given(data=st.binary(max_size=5000), codec=st.sampled_from(range(5)))
def test_there_and_back(data: bytes, codec: int) -> None:
    assert bytes(decompress(codec, COMPRESS[codec](data), LIMIT)) == data


@promise("K3")
@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("size", [1, 1000, 70_000, 500_000])
def test_other_encoders(name: str, size: int) -> None:
    """What real clients' libraries write."""
    codec, compress = FOREIGN[name]
    data = bytes(i * i % 251 for i in range(size))
    packed = compress(data)
    assert bytes(decompress(codec, packed, LIMIT)) == data
    assert bytes(decompress(codec, memoryview(packed), LIMIT)) == data


@promise("K3")
@pytest.mark.parametrize("codec", PACKED)
def test_the_limit_is_exact(codec: int) -> None:
    for size in (100, 65536, 65537, 300_000):
        packed = COMPRESS[codec](bytes(size))
        assert len(decompress(codec, packed, size)) == size
        with pytest.raises(TooLarge):
            decompress(codec, packed, size - 1)


@promise("K3")
@pytest.mark.parametrize("codec", PACKED)
def test_bombs(codec: int) -> None:
    """200 MB of nothing are refused without being opened."""
    packed = COMPRESS[codec](bytes(200 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress(codec, packed, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT + 2 * len(packed)
    finally:
        tracemalloc.stop()


@promise("K3")
def test_snappy_blocks_share_one_limit() -> None:
    packed = xerial_blocks(bytes(100_000), 1000)
    assert len(decompress(SNAPPY, packed, 100_000)) == 100_000
    with pytest.raises(TooLarge):
        decompress(SNAPPY, packed, 99_999)


@promise("K3")
@pytest.mark.parametrize("codec", PACKED)
def test_cut_short(codec: int) -> None:
    """Every proper part of compressed bytes is refused as damaged."""
    packed = COMPRESS[codec](bytes(range(256)) * 20)
    for cut in range(1, len(packed)):
        if codec == SNAPPY and len(packed) - cut <= 16:
            continue  # only the header is left, which says nothing of what follows
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[: len(packed) - cut], LIMIT)


@promise("K3")
@given(st.binary(max_size=200), st.sampled_from(PACKED))
def test_rubbish(data: bytes, codec: int) -> None:
    """Nothing but our own errors comes out."""
    try:
        opened = decompress(codec, data, LIMIT)
    except BadInput:
        return
    assert len(opened) <= LIMIT


@promise("K3")
@pytest.mark.parametrize("block", [b"\0\0", struct.pack(">i", 0), struct.pack(">i", -1), struct.pack(">i", 99) + b"x"])
def test_bad_snappy_blocks(block: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(SNAPPY, xerial(b"fine") + block, LIMIT)


@promise("K3")
def test_codecs_that_do_not_exist() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(UnsupportedBatch):
            decompress(codec, b"x", LIMIT)
    assert decompress(NONE, b"x", 0) == b"x"
    assert sorted(NAMES) == [0, 1, 2, 3, 4]


@promise("H3", "K15")
def test_what_we_write_ourselves() -> None:
    """Every codec, by name and at every level; anything else says so."""
    data = b"some records" * 100
    for name, codec in WRITTEN.items():
        assert written_codec(name) == codec
        assert bytes(decompress(codec, compress(codec, data), LIMIT)) == data
    with pytest.raises(ConfigError):
        written_codec("rar")
    with pytest.raises(UnsupportedBatch):
        compress(5, data)
    for codec, levels in ((GZIP, (-1, 1, 9)), (LZ4, (1, 9, 17)), (ZSTD, (-131072, -7, 3, 22)), (SNAPPY, (-1,))):
        for level in levels:
            for some in (b"", data, bytes(range(256)) * 1000):
                assert bytes(decompress(codec, compress(codec, some, level), LIMIT)) == some


@promise("K15")
def test_lz4_blocks_stand_for_themselves() -> None:
    """The Java client reads no others."""
    assert bytes(compress(LZ4, b"x" * 300_000))[4] & 0x20
