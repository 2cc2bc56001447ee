"""Single keys and values by their schemas: which are needed, what they decode to, and the bytes they become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.errors import BadValue
from headwater.schemas.parsing import SchemaKind, Source, parse
from headwater.schemas.payloads import Known, Reading, Usable, Writing, record_name, takes_prefix
from tests.support.protobuf import compile_in_process
from tests.unit.schemas.test_typer import GUID, OBJECT, POINT, PROTO, avro, framed

PROMISES = ("T7",)


@pytest.fixture(autouse=True)
def _compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_in_process(monkeypatch)


def usable(text: Any = POINT, kind: str = "AVRO", number: int | None = 7) -> Usable:
    return Usable(parse(Source(SchemaKind(kind), text if isinstance(text, str) else json.dumps(text))), number)


def test_names_and_values() -> None:
    point, bare = usable(), avro(POINT, {"x": 1})
    known: Known = {"7": point, "subject:s": point, GUID: point, "8": None, "9": "it cannot be used"}
    header = b"\x01" + bytes.fromhex(GUID.replace("-", ""))
    auto, pinned = Reading("auto"), Reading("subject:s")
    assert auto.wants(framed(7, bare), None) == ("7",) and auto.wants(bare, header) == (GUID,)
    assert auto.wants(bare, None) == () and pinned.wants(framed(8, bare), None) == ("8", "subject:s")
    assert auto.decoded(framed(7, bare), None, known) == auto.decoded(bare, header, known) == ({"x": 1}, 7)
    assert pinned.decoded(bare, None, known) == ({"x": 1}, 7)
    for data, told, words in (
        (bare, None, "names a schema"),
        (framed(8, bare), None, "no schema 8"),
        (framed(9, bare), None, "it cannot be used"),
        (framed(10, bare), None, "too many"),
        (framed(7, b""), None, "ends early"),
        (bare, b"?", "names a schema"),
    ):
        with pytest.raises(BadValue, match=words):
            auto.decoded(data, told, known)


def test_json_and_none() -> None:
    plain = Reading("json")
    assert plain.decoded(b'{"a": [1]}', None, {}) == ({"a": [1]}, None) and plain.wants(b"{}", None) == ()
    with pytest.raises(BadValue):
        plain.decoded(b"{bad", None, {})
    assert not Reading("none").by_schema and Reading("auto").by_schema


def test_what_is_written_is_read() -> None:
    proto, shape = usable(PROTO, "PROTOBUF"), usable(OBJECT, "JSON")
    for schema, message, value in (
        (usable(), "", {"x": 5}),
        (proto, "", {"n": 3}),
        (proto, "A.B", {"s": "z"}),
        (shape, "", {"t": "x"}),
    ):
        data = Writing(schema, message).encode(value)
        assert data[:5] == framed(7, b"") and Reading("auto").decoded(data, None, {"7": schema}) == (value, 7)
    assert Writing(proto).encode({"n": 3})[5:6] == b"\0"
    with pytest.raises(BadValue, match="at /x"):
        Writing(usable()).encode({"x": "one"})
    for schema, message, words in (
        (proto, "C", "no message"),
        (usable(), "A", "has no messages"),
        (usable(number=None), "", "id of the schema"),
    ):
        with pytest.raises(BadValue, match=words):
            Writing(schema, message)


def test_names_of_records_and_prefixes() -> None:
    assert record_name(usable().parsed) == "geo.Point" and record_name(usable('"long"').parsed) == ""
    assert (
        record_name(usable(PROTO, "PROTOBUF").parsed) == "A" and record_name(usable(OBJECT, "JSON").parsed) == "Thing"
    )
    assert [takes_prefix(source) for source in ("none", "auto", "subject:a", "json")] == [True, True, True, False]
