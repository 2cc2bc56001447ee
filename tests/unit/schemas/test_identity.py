"""GUIDs of schemas: the values are those of Confluent's registry for the same schemas."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from headwater.schemas.identity import guid

TEXT = (
    '{"type":"record","name":"Person","namespace":"io.confluent.kafka.example","fields":['
    '{"name":"name","type":"string"},{"name":"age","type":"int"},{"name":"ssn","type":"string"},'
    '{"name":"user","type":"io.confluent.kafka.example.User"},'
    '{"name":"address","type":"io.confluent.kafka.example.Address"}]}'
)
REFERENCES = [
    ("io.confluent.kafka.example.User", "User", 1),
    ("io.confluent.kafka.example.Address", "Address", 2),
]
METADATA = {
    "properties": {"version": "1.0.0", "owner": "data-team", "description": "Person schema for user management"},
    "tags": {"team": ["data-engineering"], "environment": ["staging", "production"]},
    "sensitive": ["ssn", "credit-card"],
}


@pytest.mark.parametrize(
    ("references", "metadata", "expected"),
    [
        ([], None, "d629bb05-ad85-3d20-fbcb-895de3c459f7"),
        ([], METADATA, "2034166c-90a8-1166-0ff2-f5f62c80dbe0"),
        (REFERENCES, None, "5c08d70e-5347-41b2-6369-199425d044eb"),
        (REFERENCES, METADATA, "3619d8e0-2ee8-de51-0d9e-2520d39174d5"),
    ],
)
def test_guid(references: list[tuple[str, str, int]], metadata: dict[str, Any] | None, expected: str) -> None:
    assert str(guid(TEXT, references, metadata)) == expected


def test_guid_with_rules() -> None:
    rule = {"name": "n", "kind": "K", "mode": "M", "type": "T", "tags": ["b", "a"], "params": {"y": "2", "x": "1"}}
    one = {**rule, "doc": "d", "expr": "e", "onSuccess": "s", "onFailure": "f", "disabled": True}
    rules = {"domainRules": [one], "migrationRules": [rule], "enableAt": "CLIENT"}
    said = b"{}\1" + b"nKMTabx1y2" + b"ndKMTabx1y2esf\1" + b"CLIENT"
    assert guid("{}", rules=rules).bytes == hashlib.md5(said, usedforsecurity=False).digest()
    assert guid("{}", rules={}).bytes == hashlib.md5(b"{}\1", usedforsecurity=False).digest()
