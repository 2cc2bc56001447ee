"""Checksums of compiled loops are those of the library, by instructions and by tables."""

import random

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.kernels import crc
from tests.support.promise import promise

PROMISES = ("L2",)

WAYS = ["by_tables", *(["by_instructions"] if crc.INSTRUCTIONS else [])]
DATA = random.Random(1).randbytes(8 * crc.PART)


@promise("L2")
@pytest.mark.parametrize("way", WAYS)
@given(start=st.integers(0, 40), length=st.integers(0, len(DATA) - 40))
def test_the_same_as_the_library(way: str, start: int, length: int) -> None:
    """For every length and alignment."""
    end = start + length
    found = getattr(crc, way)(np.frombuffer(DATA, dtype=np.uint8), start, end)
    assert found == crc32c(DATA[start:end])


@promise("L2")
@pytest.mark.parametrize("way", WAYS)
def test_lengths_around_three_parts(way: str) -> None:
    """Where the loops hand over to each other."""
    data = np.frombuffer(DATA, dtype=np.uint8)
    for parts in (3, 6):
        for length in range(parts * crc.PART - 9, parts * crc.PART + 10):
            assert getattr(crc, way)(data, 1, 1 + length) == crc32c(DATA[1 : 1 + length])


@promise("L2")
def test_the_processor_is_used_if_it_can() -> None:
    """Tables take ten times as long."""
    assert crc.checksum is (crc.by_instructions if crc.INSTRUCTIONS else crc.by_tables)


@promise("L2")
@pytest.mark.parametrize("name", ["NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"])
def test_not_for_another_processor(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Code that is compiled for another processor must not use what this one has."""
    monkeypatch.setenv(name, "generic")
    assert crc._instructions() is None
