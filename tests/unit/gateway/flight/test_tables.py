"""Answers about tables and about the server: exact schemas, filters."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import StatementRefused
from headwater.gateway.callers import Caller
from headwater.gateway.flight.filters import matcher
from headwater.gateway.flight.messages import pack, unpack
from headwater.gateway.flight.sqlinfo import info_schema, info_table, infos, type_table
from headwater.gateway.flight.tables import answer, schema_of
from headwater.gateway.services import Call
from headwater.state.commands.columns import Column
from headwater.state.streams.stored.typed import Columns, ColumnsVersion, TypedTable
from headwater.types import Domain
from tests.support.gateways import ALICE, gateway

PROMISES = ("Q7",)

COLUMNS = pa.schema([("offset", pa.int64()), ("value", pa.string())])


async def columns(call: Call, topic: str) -> pa.Schema:
    return COLUMNS


def ask(name: str, **fields: Any) -> list[dict[str, Any]]:
    """The rows of the answer to a command, at a gateway with two topics."""

    async def story() -> list[dict[str, Any]]:
        async with gateway() as found:
            for topic in ("orders", "old_orders"):
                await found.topic(topic)
            call = Call(found.services, Caller(ALICE, "h"), "1")
            kind, command = unpack(pack(name, **fields))
            table = await answer(kind, command, call, columns)
            assert table.schema.equals(schema_of(kind, command), check_metadata=True)
            table.validate(full=True)
            rows: list[dict[str, Any]] = table.to_pylist()
            return rows

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["old_orders", "orders"]),
        ({"table_name_filter_pattern": "ord%"}, ["orders"]),
        ({"table_name_filter_pattern": r"old\_orders"}, ["old_orders"]),
        ({"table_name_filter_pattern": ""}, []),
        ({"catalog": "headwater", "db_schema_filter_pattern": "top%"}, ["old_orders", "orders"]),
        ({"catalog": ""}, []),
        ({"catalog": "other"}, []),
        ({"db_schema_filter_pattern": "other"}, []),
        ({"table_types": ["VIEW"]}, []),
        ({"table_types": ["VIEW", "TABLE"]}, ["old_orders", "orders"]),
    ],
)
def test_tables(fields: dict[str, Any], names: list[str]) -> None:
    found = ask("CommandGetTables", **fields)
    assert [row["table_name"] for row in found] == names
    assert all((row["catalog_name"], row["db_schema_name"]) == ("headwater", "topics") for row in found)


def test_columns() -> None:
    [row] = ask("CommandGetTables", table_name_filter_pattern="orders", include_schema=True)
    shown = pa.ipc.read_schema(pa.py_buffer(row["table_schema"]))
    assert shown.equals(COLUMNS)
    assert shown.field("value").metadata[b"ARROW:FLIGHT:SQL:TABLE_NAME"] == b"orders"


def test_topics_with_typed_columns_have_columns_of_their_own() -> None:
    """A topic that is deleted meanwhile is left out."""
    asked = list[str]()

    async def own(call: Call, topic: str) -> pa.Schema:
        asked.append(topic)
        if topic == "gone":
            raise StatementRefused("it does not exist")
        return COLUMNS.append(pa.field(topic, pa.int64()))

    async def story() -> None:
        async with gateway() as found:
            for name in ("a", "b", "c", "gone"):
                await found.topic(name)
            call = Call(found.services, Caller(ALICE, "h"), "1")
            for name in ("b", "gone"):
                topic = call.services.state.names[name]
                table = TypedTable()
                table.columns = Columns((Column(100, "x", "x", "long", "", ()),), (ColumnsVersion(100, 0),))
                call.services.domains[Domain(topic.domain)].state.typed[topic.id] = table
            kind, command = unpack(pack("CommandGetTables", include_schema=True))
            rows = (await answer(kind, command, call, own)).to_pylist()
            shown = {row["table_name"]: pa.ipc.read_schema(pa.py_buffer(row["table_schema"])).names[-1] for row in rows}
            assert shown == {"a": "a", "b": "b", "c": "a"} and asked == ["a", "b", "gone"]

    asyncio.run(story())


def test_other_answers() -> None:
    assert ask("CommandGetCatalogs") == [{"catalog_name": "headwater"}]
    assert ask("CommandGetDbSchemas") == [{"catalog_name": "headwater", "db_schema_name": "topics"}]
    assert ask("CommandGetDbSchemas", catalog="other") == []
    assert ask("CommandGetTableTypes") == [{"table_type": "TABLE"}]
    for name in ("PrimaryKeys", "ExportedKeys", "ImportedKeys"):
        assert ask(f"CommandGet{name}", table="orders") == []
    assert ask("CommandGetCrossReference", pk_table="orders", fk_table="orders") == []
    assert ask("CommandGetSqlInfo", info=[0]) == [{"info_name": 0, "value": "Headwater"}]
    assert [row["type_name"] for row in ask("CommandGetXdbcTypeInfo", data_type=-5)] == ["BIGINT"]
    assert len(ask("CommandGetXdbcTypeInfo")) > 10


def test_infos() -> None:
    """Every number has a value, of the member of the union that JDBC's driver expects for it."""
    assert set(range(500, 577)) <= set(infos())
    table = info_table([])
    assert table.schema.equals(info_schema()) and table.num_rows == len(infos())
    values = dict(zip(table.column("info_name").to_pylist(), table.column("value").to_pylist(), strict=True))
    assert values[3] is True and values[8] == 0 and values[504] == '"' and "QUALIFY" in values[508]
    assert values[517] == [] and values[540] == 3
    assert info_table([99_999]).num_rows == 0
    assert type_table(12).to_pylist()[0]["literal_prefix"] == "'"


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("%", "", True),
        ("%", "any.thing", True),
        ("a_c", "abc", True),
        ("a_c", "ac", False),
        (r"a\_c", "abc", False),
        (r"a\%", "a%", True),
        ("a.c", "abc", False),
        ("%%%b%_%", "abc", True),
        ("%" * 1_000 + "x", "a" * 249, False),
    ],
)
def test_patterns(pattern: str, name: str, fits: bool) -> None:
    assert matcher(pattern)(name) is fits
