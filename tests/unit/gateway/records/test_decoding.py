"""Keys and values by their schemas, over HTTP: every kind, by prefix, header and subject, and what does not fit."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest

from headwater.gateway.records import decoding
from headwater.replica.schema_sources import Draft
from headwater.settings.schema_registry import SchemaRegistry
from headwater.settings.settings import Settings
from tests.support.gateways import InGateway, gateway
from tests.support.protobuf import compile_in_process
from tests.unit.schemas.test_typer import POINT, PROTO, avro, framed

PROMISES = ("T7",)

PATH = "/v1/topics/t/records"


@pytest.fixture(autouse=True)
def _compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_in_process(monkeypatch)


async def put(world: InGateway, *records: tuple[Any, ...]) -> None:
    """Append (key, value, headers)."""
    made = []
    for key, value, *headers in records:
        line: dict[str, Any] = {"key_base64": text(key)} if key is not None else {}
        line |= {"value_base64": text(value)} if value is not None else {"value": None}
        made.append({**line, "headers": [{"name": name, "value_base64": text(one)} for name, one in headers]})
    answer = await world.ask("POST", PATH, json={"records": made})
    assert answer.status_code == 200, answer.text


def text(data: bytes) -> str:
    return b64encode(data).decode()


async def read(world: InGateway, path: str = PATH, **options: Any) -> Any:
    answer = await world.get(path, params={"format": "decoded"}, **options)
    assert answer.status_code == 200, answer.text
    return answer


def test_by_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with gateway() as world:
            registry = world.services.registry
            _, point = await registry.register("t-value", Draft("AVRO", json.dumps(POINT)))
            _, name = await registry.register("t-key", Draft("AVRO", '"string"'))
            _, proto = await registry.register("p", Draft("PROTOBUF", PROTO))
            await world.topic("t", **{"headwater.key.schema": "auto", "headwater.value.schema": "subject:t-value"})
            bare = avro(POINT, {"x": 7})
            await put(
                world,
                (framed(name.id, b"\x02a"), framed(point.id, avro(POINT, {"x": 1}))),
                (None, bare),
                (b"plain", framed(proto.id, b"\x00\x08\x05")),
                (None, framed(proto.id, b"\x04\x00\x00\x0a\x01z")),
                (None, bare, ("__value_schema_id", b"\x01" + point.guid.bytes)),
                (None, bare, ("__value_schema_id", b"?")),
                (None, framed(point.id, b"\x02\x02")),
                (framed(999, b"\x02"), framed(999, b"\x02")),
                (None, framed(proto.id, b"\x02\x12\x08\x05")),
                (None, None),
            )
            records = (await read(world)).json()["records"]
            assert [one["value"] for one in records[:5]] == [{"x": 1}, {"x": 7}, {"n": 5}, {"s": "z"}, {"x": 7}]
            ids = [point.id, point.id, proto.id, proto.id, point.id]
            assert [one["value_schema"] for one in records[:5]] == ids
            assert (records[0]["key"], records[0]["key_schema"]) == ("a", name.id)
            assert records[2]["key"] == "plain" and "neither a prefix" in records[2]["key_error"]
            told = ["neither a prefix", "bytes are left", "bytes are left", "no message with the indexes [9]"]
            assert all(words in one["value_error"] for words, one in zip(told, records[5:9], strict=True)), records[5:]
            assert "no schema 999" in records[7]["key_error"]
            assert records[9]["value"] is None and "value_error" not in records[9]
            for accept in ("application/x-ndjson", "text/event-stream"):
                options = {"params": {"format": "decoded", "follow": "true", "limit": 1}, "headers": {"Accept": accept}}
                streamed = (await world.get(PATH, **options)).text  # type: ignore[arg-type]
                line = next(line for line in streamed.splitlines() if '"offset"' in line)
                assert json.loads(line.removeprefix("data: "))["value"] == {"x": 1}
            one = (await read(world, "/v1/topics/t/partitions/0/records/2")).json()["record"]
            assert one == records[2]
            monkeypatch.setattr(decoding, "MAX_SCHEMAS", 1)
            few = (await read(world)).json()["records"]
            assert few[0]["key"] == "a" and "too many different schemas" in few[0]["value_error"]

    asyncio.run(main())


def test_json_and_no_schema() -> None:
    async def main() -> None:
        async with gateway() as world:
            await world.topic("t", **{"headwater.value.schema": "json"})
            await put(world, (b"5", b'{"a": [1, 2]}'), (b"k", b'"text"'), (b"\xff", b"{bad"), (None, b"\xff"))
            records = (await read(world)).json()["records"]
            assert [one.get("value") for one in records] == [{"a": [1, 2]}, "text", "{bad", None]
            assert [bool(one.get("value_error")) for one in records] == [False, False, True, True]
            assert records[3]["value_base64"] == text(b"\xff")
            assert [one.get("key") for one in records] == [5, "k", None, None] and records[2]["key_base64"]
            both = (await world.get(PATH, params={"format": "both"})).json()["records"]
            values = [b'{"a": [1, 2]}', b'"text"', b"{bad", b"\xff"]
            assert [one["value_base64"] for one in both] == [text(value) for value in values]
            plain = [{name: one[name] for name in one if "base64" not in name} for one in (*both, *records)]
            assert plain[:4] == plain[4:] and "key_base64" not in both[3]
            found = (await world.get("/v1/topics/t/latest", params={"format": "both", "key": "5"})).json()["record"]
            assert found == both[0]

    asyncio.run(main())


def test_another_registry() -> None:
    async def main() -> None:
        own = Settings(schema_registry=SchemaRegistry(url="http://127.0.0.1:1", retries=0))
        async with gateway(own) as world:
            await world.topic("t", **{"headwater.value.schema": "auto"})
            await put(world, (None, framed(1, b"\xff")))
            [record] = (await read(world)).json()["records"]
            assert "registry cannot be asked" in record["value_error"] and record["value_base64"] == text(
                framed(1, b"\xff")
            )

    asyncio.run(main())
