"""Keys and values in JSON: one meaning each, both ways."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import BadInput
from headwater.gateway.records.values import ABSENT, Format, bytes_of, from_base64, shown

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode) | JSON.map(msgspec.json.encode))
def test_what_is_shown_stands_for_the_same_bytes(data: bytes | None) -> None:
    for form in Format:
        value, in_base64 = shown(data, form)
        assert b"\n" not in bytes(value)
        assert bytes_of("value", value, in_base64) == data


def test_fields_have_one_meaning() -> None:
    def read(text: bytes) -> bytes | None:
        return bytes_of("value", msgspec.Raw(text), None)

    assert read(b'"text"') == b"text" and read(b'"\\u00e9"') == "é".encode()
    assert read(b'{ "a" : [1.0, 12345678901234567890123] }') == b'{"a":[1.0,12345678901234567890123]}'
    assert (read(b"1.50"), read(b"true"), read(b"null"), read(b'"null"')) == (b"1.50", b"true", None, b"null")
    assert bytes_of("value", ABSENT, "_-8") == bytes_of("value", ABSENT, "/+8=") == b"\xff\xef"
    with pytest.raises(BadInput, match="exclude"):
        bytes_of("value", msgspec.Raw(b"1"), "YQ==")
    for wrong in ("a", "$$$$", "é"):
        with pytest.raises(BadInput, match="`key_base64` is not base64"):
            from_base64("key_base64", wrong)


def test_json_is_embedded_where_it_has_one_meaning() -> None:
    def seen(data: bytes) -> bytes:
        return bytes(shown(data, Format.JSON)[0])

    assert seen(b'{"a":\n 1.0}') == b'{"a":1.0}' and seen(b"7") == b"7"
    assert seen(b'"quoted"') == b'"\\"quoted\\""' and seen(b"null") == b'"null"' and seen(b" null") == b'" null"'
    assert seen(b"{oops") == b'"{oops"' and seen(b"") == b'""'
    assert seen(b"[" * 5000 + b"]" * 5000).startswith(b'"[[')
    assert shown(b"\xff", Format.JSON) == (ABSENT, "/w==")
