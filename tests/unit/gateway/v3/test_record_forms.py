"""Records of the REST Proxy: types of keys and values, headers, times, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.gateway.v3.errors import Told
from headwater.gateway.v3.record_forms import Form, Malformed, Wanted, forms_of, time_of

NOW = 1_700_000_000_123


def form(**fields: Any) -> Form:
    [found] = forms_of([json.dumps(fields).encode()], NOW)
    assert isinstance(found, Form), found
    return found


@pytest.mark.parametrize(
    ("data", "kind", "stored"),
    [
        ({"type": "BINARY", "data": "Zm9vYmFy"}, "BINARY", b"foobar"),
        ({"type": "BINARY", "data": ""}, "BINARY", b""),
        ({"type": "STRING", "data": "grüße \n"}, "STRING", "grüße \n".encode()),
        ({"type": "JSON", "data": {"foo": ["bar", 1]}}, "JSON", b'{"foo":["bar",1]}'),
        ({"type": "JSON", "data": "text"}, "JSON", b'"text"'),
        ({"type": "JSON", "data": 1.50}, "JSON", b"1.5"),
        ({"data": 1000}, "JSON", b"1000"),
        ({"data": "foobar"}, "JSON", b'"foobar"'),
        ({"type": "BINARY", "data": None}, "BINARY", None),
        ({"type": "STRING"}, "STRING", None),
        ({"type": "JSON", "data": None}, "JSON", None),
        ({}, "JSON", None),
    ],
)
def test_keys_and_values(data: dict[str, Any], kind: str, stored: bytes | None) -> None:
    found = form(key=data, value=data)
    assert (found.key_type, found.entry.key) == (kind, stored)
    assert (found.value_type, found.entry.value) == (kind, stored)


def test_what_data_says_about_its_schema() -> None:
    found = form(
        key={"type": "AVRO", "schema_id": 7, "subject_name_strategy": "RECORD_NAME", "data": {"a": 1}},
        value={"subject": "s", "schema_version": 2, "data": "text"},
    )
    assert (found.key_schema, found.entry.key) == (Wanted("AVRO", "", "RECORD_NAME", 7), b'{"a":1}')
    assert (found.value_schema, found.entry.value) == (Wanted("", "s", "", 0, 2), b'"text"')
    assert form(value={"data": 1}).value_schema == Wanted() and not Wanted().certain and Wanted("AVRO").certain
    assert form(value={"type": "JSON", "data": 1}).value_schema is None
    assert form(value={"schema_id": 7, "data": None}).value_schema is None


def test_a_record_with_everything_and_one_with_nothing() -> None:
    found = form(
        partition_id=1,
        headers=[{"name": "Header-1", "value": "SGVhZGVyLTE="}, {"name": "none", "value": None}, {"name": "x"}],
        timestamp="2021-02-05T19:14:42Z",
    ).entry
    assert (found.partition, found.timestamp) == (1, 1_612_552_482_000)
    assert found.headers == (("Header-1", b"Header-1"), ("none", None), ("x", None))
    bare = form()
    assert (bare.entry.key, bare.entry.value, bare.entry.timestamp) == (None, None, NOW)
    assert (bare.key_type, bare.value_type) == (None, None)


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"value": {"type": "BINARY", "data": 1}}, 400, "Bad Request: data=1 is not a base64 string."),
        ({"value": {"type": "BINARY", "data": "!"}}, 400, 'Bad Request: data="!" is not a valid base64 string.'),
        ({"value": {"type": "STRING", "data": {}}}, 400, "Bad Request: data={} is not a string."),
        ({"value": {"schema": "{}", "data": 1}}, 400, "needs the type of the schema"),
        ({"key": {"type": "STRING", "schema_id": 1}}, 400, "the key has the type STRING, which has no schema"),
        ({"value": {"schema_version": 1, "schema_id": 1, "data": {}}}, 400, "more than one of schema_id"),
        ({"value": {"subject": "s", "subject_name_strategy": "TOPIC_NAME"}}, 400, "both subject and"),
        ({"value": {"subject_name_strategy": "MINE", "data": 1}}, 400, "Invalid enum value"),
        ({"value": {"schema_id": 0, "data": 1}}, 400, ">= 1"),
        ({"value": {"type": "XML", "data": "x"}}, 400, "is none of BINARY, JSON, STRING, AVRO"),
        ({"headers": [{"name": "h", "value": "?"}]}, 400, "the value of the header 'h' is not a base64 string"),
        ({"partition_id": -1}, 40402, "Partition not found."),
        ({"partition_id": "A"}, 400, "Expected `int | null`, got `str`"),
        ({"timestamp": "yesterday"}, 400, "Invalid RFC3339"),
        ({"timestamp": "2021-02-05T19:14:42"}, 400, "timezone"),
        ({"timestamp": "1969-01-01T00:00:00Z"}, 400, "before 1970"),
        ({"vlaue": {}}, 400, "unknown field `vlaue`"),
    ],
)
def test_flawed_records(fields: dict[str, Any], code: int, message: str) -> None:
    good = b'{"value":{"data":1}}'
    first, flawed, last = forms_of([good, json.dumps(fields).encode(), good], NOW)
    assert isinstance(first, Form) and isinstance(last, Form)
    assert isinstance(flawed, Told) and flawed.error_code == code and message in flawed.message


@pytest.mark.parametrize("text", [b"{foo:1}", b'{"value":}', b'{"value":{"data":"\xff"}}'])
def test_nothing_comes_after_what_is_not_json(text: bytes) -> None:
    found = forms_of([b"{}", text, b"{}"], NOW)
    assert len(found) == 2 and isinstance(found[1], Malformed)


def test_times_as_the_rest_proxy_shows_them() -> None:
    assert time_of(1_612_552_482_000) == "2021-02-05T19:14:42Z"
    assert time_of(1_684_261_251_844) == "2023-05-16T18:20:51.844Z"
