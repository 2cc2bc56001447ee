"""Objects of an index of keys: what is written is read, and nothing else is taken for it."""

from __future__ import annotations

import numpy as np
import pytest

from headwater.errors import Damaged
from headwater.lake.tables.keys import format as keys
from headwater.lake.tables.keys.format import Manifest, Part, Run

ROWS = 2 * keys.BLOCK_ROWS + 10


def _rows() -> keys.Rows:
    chance = np.random.default_rng(7)
    hashes = chance.integers(0, 1 << 64, ROWS, dtype=np.uint64)
    return keys.ordered((hashes, np.arange(ROWS, dtype=np.uint32) % 3, np.arange(ROWS, dtype=np.int64)))


def _same(one: keys.Rows, other: keys.Rows) -> bool:
    return all((a == b).all() for a, b in zip(one, other, strict=True))


def test_blocks() -> None:
    rows = _rows()
    blocks, firsts = keys.pack_blocks(rows)
    data = b"".join(blocks)
    assert len(blocks) == 3 and len(blocks[0]) == keys.BLOCK_BYTES
    assert _same(keys.joined(list(keys.unpack_blocks("p", data))), rows)
    part = Part("p", ROWS, firsts, int(rows[0][-1]))
    assert part.place(0, 2) == (0, len(data)) and part.place(2, 2) == (2 * keys.BLOCK_BYTES, len(blocks[2]))
    for row in (0, 1, keys.BLOCK_ROWS - 1, keys.BLOCK_ROWS, ROWS - 1):
        wanted = int(rows[0][row])
        first, last = part.blocks_between(wanted, wanted) or (9, 9)
        start, length = part.place(first, last)
        found = keys.joined(
            [keys.between(one, wanted, wanted) for one in keys.unpack_blocks("p", data[start : start + length])]
        )
        assert last - first <= 1 and rows[2][row] in found[2]
    assert part.blocks_between(0, int(rows[0][0]) - 1) is None
    assert part.blocks_between(int(rows[0][-1]) + 1, (1 << 64) - 1) is None
    assert len(keys.from_offset(rows, 100)[0]) == ROWS - 100 and len(keys.joined([])[0]) == 0


def test_a_key_in_several_blocks() -> None:
    """A hash that many rows have is found in all blocks that have it."""
    same = np.full(ROWS, 5, dtype=np.uint64)
    blocks, firsts = keys.pack_blocks((same, np.zeros(ROWS, np.uint32), np.arange(ROWS)))
    part = Part("p", ROWS, firsts, 5)
    assert part.blocks_between(5, 5) == (0, 2) and part.blocks_between(4, 4) is None
    assert sum(len(rows[0]) for rows in keys.unpack_blocks("p", b"".join(blocks))) == ROWS


def test_damage_is_found() -> None:
    blocks, firsts = keys.pack_blocks(_rows())
    data = b"".join(blocks)
    for at in (0, keys.BLOCK_BYTES - 1, len(data) - 1, 12_345):
        spoilt = bytearray(data)
        spoilt[at] ^= 4
        with pytest.raises(Damaged, match="a block of keys is not as it was written"):
            list(keys.unpack_blocks("p", bytes(spoilt)))
    for cut in (data[:-1], data[: keys.BLOCK_BYTES + 3]):
        with pytest.raises(Damaged):
            list(keys.unpack_blocks("p", cut))
    manifest = keys.pack_manifest(Manifest(keys.VERSION, 3, [Run([Part("p", ROWS, firsts, 9)])]))
    found = keys.unpack_manifest("m", manifest)
    assert found.cursor == 3 and found.runs[0].rows == ROWS
    for at in range(0, len(manifest), 5):
        spoilt = bytearray(manifest)
        spoilt[at] ^= 1
        with pytest.raises(Damaged):
            keys.unpack_manifest("m", bytes(spoilt))
    with pytest.raises(Damaged, match="this build reads version 1"):
        keys.unpack_manifest("m", keys.pack_manifest(Manifest(2, 3, [])))
    with pytest.raises(Damaged, match="not a manifest"):
        keys.unpack_manifest("m", b"HWK")
