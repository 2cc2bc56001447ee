"""JSON without a schema: shapes that are found in payloads, values that come back unchanged, flaws that are named."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.schemas.decoding import inference
from headwater.schemas.decoding.json_plain import decode, decode_as, infer
from headwater.schemas.leftovers import values
from headwater.schemas.shapes import (
    BOOLEAN,
    DATE,
    DOUBLE,
    JSON,
    LONG,
    NULL,
    STRING,
    Field,
    Shape,
    decimal,
    list_of,
    map_of,
    struct,
)

SPLINTERS = [b"", b'"', b"{", b"]", b"\\", b"0"]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8)
)
NAMES = st.sampled_from(["a", "b", "long name", "é", "", 'q"\\\n']) | st.text(st.characters(codec="utf-8"), max_size=3)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)


def binary(*payloads: bytes | None) -> pa.Array:
    return pa.array(payloads, pa.binary())


def is_void(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or (isinstance(value, (dict, list)) and all(map(is_void, parts)))


def same(found: Any, value: Any) -> bool:
    """Whether a value came back: what holds nothing may be missing, and a huge number may be text."""
    if found is None and is_void(value):
        return True
    if isinstance(value, dict):
        return isinstance(found, dict) and all(same(found.get(name), part) for name, part in value.items())
    if isinstance(value, list):
        return isinstance(found, list) and len(found) == len(value) and all(map(same, found, value))
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return bool(found == value and type(found) is type(value))
    return bool(found == value or (isinstance(value, int) and found == str(value)))


def infer_one(text: bytes) -> Shape:
    [field] = infer(binary(b'{"f":' + text + b"}")).fields
    return field.shape


@settings(max_examples=60)
@given(st.lists(OBJECTS, min_size=1, max_size=8), st.booleans())
def test_every_value_of_an_object_comes_back(objects: list[dict[str, Any]], ascii_only: bool) -> None:
    payloads = binary(*(json.dumps(one, ensure_ascii=ascii_only).encode() for one in objects))
    shape = infer(payloads)
    decoded = decode_as(shape, payloads)
    decoded.array.validate(full=True)
    assert not decoded.errors
    for found, value in zip(values(decoded.array, shape), objects, strict=True):
        assert same(found, value), (found, value)


def test_types_of_values() -> None:
    assert infer_one(b"1") == LONG
    assert infer_one(b"1.0") == DOUBLE
    assert infer_one(b"1e3") == DOUBLE
    assert infer_one(b"true") == BOOLEAN
    assert infer_one(b'"x"') == STRING
    assert infer_one(b'[{"x":true},{},null]') == list_of(struct(Field("x", BOOLEAN)))
    assert infer_one(b"[1,2.5]") == list_of(DOUBLE)
    assert infer_one(b'[1,"a"]') == list_of(JSON)
    assert infer_one(b"9223372036854775808") == decimal(38, 0)
    assert infer_one(b"1" * 40) == JSON
    assert infer_one(b"1e999") == JSON


def test_types_that_differ_between_rows_are_fields_of_one_name() -> None:
    payloads = binary(b'{"v":1}', b'{"v":"x"}', b'{"v":[true]}', b'{"v":{"w":1}}', b'{"v":false}')
    shape = infer(payloads)
    assert [(field.name, field.shape.kind) for field in shape.fields] == [
        ("v", "long"),
        ("v", "string"),
        ("v", "boolean"),
        ("v", "struct"),
        ("v", "list"),
    ]
    assert values(decode_as(shape, payloads).array, shape) == [
        {"v": 1},
        {"v": "x"},
        {"v": [True]},
        {"v": {"w": 1}},
        {"v": False},
    ]


def test_whole_numbers_and_others_are_doubles_if_that_is_exact() -> None:
    assert infer(binary(b'{"v":1}', b'{"v":1.5}')) == struct(Field("v", DOUBLE))
    payloads = binary(b'{"v":9007199254740993}', b'{"v":1.5}', b'{"v":2}')
    shape = infer(payloads)
    assert {field.shape for field in shape.fields} == {LONG, DOUBLE}
    assert [row["v"] for row in values(decode_as(shape, payloads).array, shape)] == [9007199254740993, 1.5, 2]  # type: ignore[index]


def test_a_known_shape_keeps_its_fields_and_types() -> None:
    known = struct(Field("v", LONG), Field("gone", STRING))
    assert infer(binary(b'{"v":1.5,"new":true}'), known) == struct(
        Field("v", LONG), Field("v", DOUBLE), Field("gone", STRING), Field("new", BOOLEAN)
    )


def test_types_of_other_schemas_are_not_used() -> None:
    known = struct(Field("v", DATE), Field("w", decimal(9, 2)), Field("m", map_of(LONG)))
    payloads = binary(b'{"v":"2024-01-01","w":1.005,"m":{"a":1}}', b'{"v":"x","m":{"a":"b"}}')
    shape, decoded = decode(payloads, known)
    assert not decoded.errors
    assert [row["v"] for row in values(decoded.array, shape)] == ["2024-01-01", "x"]  # type: ignore[index]
    assert STRING in [field.shape for field in shape.fields if field.name == "v"]


def test_rare_fields_far_behind_are_found() -> None:
    rows = [{"id": at} for at in range(3_000)]
    rows[2_999] = {"id": 1.5, "rare": {"deep": [1]}}
    payloads = binary(*(json.dumps(row).encode() for row in rows))
    shape = infer(payloads)
    assert shape == struct(Field("id", DOUBLE), Field("rare", struct(Field("deep", list_of(LONG)))))
    assert not decode_as(shape, payloads).errors


def test_objects_with_ever_new_names_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "MAX_NAMES", 200)
    payloads = binary(*(json.dumps({"by id": {f"k{at}": at}}).encode() for at in range(600)))
    assert infer(payloads) == struct(Field("by id", JSON))
    assert decode_as(infer(payloads), payloads).array.field(0)[7].as_py() == '{"k7": 7}'
    known = struct(Field("by id", struct(Field("k5", LONG))))
    assert infer(payloads, known) == known
    assert values(decode_as(known, payloads).array, known)[5] == {"by id": {"k5": 5}}


def test_payloads_that_are_no_objects() -> None:
    assert infer(binary(b"1", b"2.5", b"null", None)) == DOUBLE
    assert infer(binary(b"1", b'"a"')) == JSON
    assert infer(binary(b"[1]", b"[2]")) == list_of(LONG)
    assert infer(binary()) == infer(binary(None, b"null", b"{}", b'{"a":[null,{}]}')) == NULL
    mixed = binary(b"1", b'{"a":1}')
    decoded = decode_as(infer(mixed), mixed)
    assert decoded.array.to_pylist() == [None, {"a": 1}]
    assert list(decoded.errors) == [0]


FLAWED = {
    b"": "cut short",
    b"   ": "cut short",
    b'{"a":1': "cut short",
    b'{"a":"x': "cut short",
    b'{"a":': "cut short",
    b'{"a"': "cut short",
    b"nul": "not JSON",
    b"{'a':1}": "not JSON",
    b'{"a":1,}': "not JSON",
    b"[1,]": "not JSON",
    b'{"a":NaN}': "not JSON",
    b'{"a":Infinity}': "not JSON",
    b'{"a" 1}': "not JSON",
    b'{"a":1 "b":2}': "not JSON",
    b'{"a":01}': "no number",
    b'{"a":1.}': "no number",
    b'{"a":1e}': "no number",
    b'{"a":-}': "no number",
    b'{"a":1} {}': "a: there is more",
    b'{"s":"\xff"}': "not UTF-8",
    b'{"s":"\\ud800"}': "surrogate",
    b'{"s":"\\udc00\\ud800"}': "surrogate",
    b'{"s":"\x01"}': "control character",
    b'{"s":"\\x"}': "unknown escape",
    b'{"a":1,"a":2}': "a: the name occurs twice",
    b'{"a":1,"\\u0061":null}': "a: the name occurs twice",
    b'{"a":"1"}': "a: the value has another type",
    b'{"s":1}': "s: the value has another type",
    b'{"a":9223372036854775808}': "a: the number is out of range",
    b'{"d":9007199254740993}': "d: the number cannot be kept exactly",
    b'{"d":1e999}': "d: the number is too large",
    b'{"m":{"k":1,"l":2,"k":1}}': "m: a key of the map occurs twice",
    b'{"l":[{"x":1},{"x":"y"}]}': "l[].x: the value has another type",
    b'{"u":' + b"[" * 600 + b"]" * 600 + b"}": "nested too deeply",
    b"[1]": "another type",
}
SHAPE = struct(
    Field("a", LONG),
    Field("s", STRING),
    Field("d", DOUBLE),
    Field("l", list_of(struct(Field("x", LONG)))),
    Field("m", map_of(LONG)),
    Field("j", JSON),
)


@pytest.mark.parametrize("inside", ['\\"', "\\n", "\\u0041", "é", "\\\\"])
def test_strings_of_every_length_end_where_they_end(inside: str) -> None:
    texts = ["x" * at + inside + "x" * (length - at) for length in range(18) for at in range(length + 1)]
    decoded = decode_as(SHAPE, binary(*(f'{{"s":"{text}","a":7}}'.encode() for text in texts)))
    assert not decoded.errors
    found = decoded.array.to_pylist()
    assert [row["s"] for row in found] == [json.loads(f'"{text}"') for text in texts]
    assert {row["a"] for row in found} == {7}
    broken = decode_as(SHAPE, binary(*(f'{{"s":"{text}'.replace(inside, "\x01").encode() for text in texts)))
    assert ["control character" in error for error in broken.errors.values()] == [True] * len(texts)


def test_names_that_need_escapes_are_not_found_in_others() -> None:
    shape = struct(Field("a\\", LONG), Field('b"', LONG), Field("c", LONG))
    good, cut = b'{"a\\\\":1,"b\\"":2, "c" : 3}', b'{"a\\":1}'
    decoded = decode_as(shape, binary(good, cut, b'{"c":4,"a\\\\":5}'))
    rows = decoded.array.to_pylist()
    assert [row and list(row.values()) for row in rows] == [[1, 2, 3], None, [5, None, 4]]
    assert "cut short" in decoded.errors[1]


def test_flaws_are_named_and_leave_other_rows_alone() -> None:
    good = b'{"l":[{"x":1},null],"s":"z","m":{"k":1,"\\n":null},"j":{"p": [1, 2]}}'
    payloads: list[bytes | None] = []
    for text in FLAWED:
        payloads += [text, good, None]
    decoded = decode_as(SHAPE, binary(*payloads))
    decoded.array.validate(full=True)
    assert list(decoded.errors) == list(range(0, len(payloads), 3))
    for flaw, error in zip(FLAWED.values(), decoded.errors.values(), strict=True):
        assert flaw in error
    row = {"a": None, "s": "z", "d": None, "l": [{"x": 1}, None], "m": [("k", 1), ("\n", None)], "j": '{"p": [1, 2]}'}
    assert decoded.array.to_pylist() == [None, row, None] * len(FLAWED)


def test_numbers_are_what_python_reads() -> None:
    source = random.Random(5)
    texts = [repr(source.uniform(-1, 1) * 10 ** source.randint(-300, 300)) for _ in range(2_000)]
    texts += [f"{source.randint(0, 10**18)}e{source.randint(-340, 280)}" for _ in range(2_000)]
    texts += ["0.0", "-0.0", "1e22", "1e23", "5e-324", "2.4e-324", "0.1", "1.7976931348623157e308", "-0", "100000"]
    found = decode_as(DOUBLE, binary(*(text.encode() for text in texts)))
    assert not found.errors
    assert [repr(value) for value in found.array.to_pylist()] == [
        repr(float(text) if text != "-0" else 0.0) for text in texts
    ]
    whole = [9223372036854775807, -9223372036854775808, 0, 1234567890123456789, -1]
    assert decode_as(LONG, binary(*(str(one).encode() for one in whole))).array.to_pylist() == whole


def test_a_byte_order_mark_and_white_space_are_passed_over() -> None:
    decoded = decode_as(SHAPE, binary(b'\xef\xbb\xbf \r\n\t{ "a" : 1 , "l" : [ ] , "j" : [ 1 ] } \n'))
    assert decoded.array.to_pylist() == [{"a": 1, "s": None, "d": None, "l": [], "m": None, "j": "[ 1 ]"}]


def test_slices_and_other_types_of_payloads() -> None:
    payloads = binary(b"x", None, b'{"a":1}', b'{"a":2}', b"y")
    for one in (payloads.slice(1, 3), payloads.cast(pa.large_binary()).slice(1, 3)):
        assert decode_as(struct(Field("a", LONG)), one).array.to_pylist() == [None, {"a": 1}, {"a": 2}]
    assert len(decode_as(SHAPE, binary()).array) == 0


def test_long_lists_make_room_for_themselves() -> None:
    payloads = binary(*(json.dumps({"l": [{"x": at}] * 700}).encode() for at in range(20)), b"[")
    decoded = decode_as(SHAPE, payloads)
    assert list(decoded.errors) == [20]
    assert decoded.array.to_pylist()[19]["l"] == [{"x": 19}] * 700


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_harm_nothing(seed: int) -> None:
    source = random.Random(seed)
    good = b'{"a":-12,"s":"x\\u00e9\\n","d":1.5e3,"l":[{"x":1},{}],"m":{"k":[1]},"j":{"a":[{},"b"]},"u":[[],{}]}'
    texts = []
    for _ in range(2_000):
        text = bytearray(good)
        for _ in range(source.randint(1, 4)):
            at = source.randrange(len(text))
            text[at : at + source.randint(0, 2)] = source.choice([*SPLINTERS, bytes([source.randrange(256)])])
        texts.append(bytes(text))
    payloads = binary(*texts)
    decoded = decode_as(SHAPE, payloads)
    decoded.array.validate(full=True)
    for at, text in enumerate(texts):
        try:
            json.loads(text, parse_constant=lambda name: name[""])
        except (ValueError, TypeError, RecursionError):
            assert at in decoded.errors, text
    decode_as(infer(payloads), payloads).array.validate(full=True)
