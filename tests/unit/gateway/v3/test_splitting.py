"""A stream of JSON objects is cut into the objects, wherever its parts end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.gateway.v3.splitting import Splitter

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=5)


def cut(data: bytes, *, size: int, most: int = 1 << 20) -> tuple[list[bytes], Splitter]:
    """The objects in data that comes in parts of a size."""
    splitter = Splitter(most)
    found = [one for at in range(0, len(data), size) for one in splitter.feed(data[at : at + size])]
    splitter.end()
    return found, splitter


@given(OBJECTS, st.integers(1, 40), st.sampled_from(["", "\n", " \r\n\t"]), st.booleans())
def test_objects_come_out_as_they_went_in(objects: list[dict[str, Any]], size: int, gap: str, plain: bool) -> None:
    texts = [json.dumps(one, ensure_ascii=plain).encode("utf-8", "surrogatepass") for one in objects]
    found, splitter = cut(gap.encode().join(texts) + gap.encode(), size=size)
    assert found == texts and splitter.flaw is None and splitter.size == 0


@pytest.mark.parametrize("size", [1, 3, 100])
def test_what_is_no_object_ends_the_stream(size: int) -> None:
    found, splitter = cut(b'{"a":1} 17 {"b":2}', size=size)
    assert found == [b'{"a":1}'] and "'1'" in str(splitter.flaw)


@pytest.mark.parametrize("text", [b'{"a":', b'{"a":"}', b'{"a":"\\"}', b'{"a":[{}]'])
def test_a_stream_that_ends_within_an_object(text: bytes) -> None:
    found, splitter = cut(b"{}" + text, size=2)
    assert found == [b"{}"] and "ends within" in str(splitter.flaw)


def test_an_object_that_is_too_large() -> None:
    found, splitter = cut(b"{}" + b'{"a":"' + b"x" * 100, size=10, most=64)
    assert found == [b"{}"] and "more than 64 bytes" in str(splitter.flaw)
