"""Messages from plain values, for every API and version; and no handler says a name that no message has."""

import ast
import datetime
import inspect
import io
import typing
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from types import ModuleType

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from headwater.broker import handlers
from headwater.broker.registry import APIS
from headwater.wire.build import build, builder
from headwater.wire.messages import known_versions, request_type, response_type
from tests.support.promise import promise

PROMISES = ("K1",)

MESSAGES = [(key, version) for key in api_key_map for version in known_versions(key)]


@promise("K1")
@pytest.mark.parametrize("load", [load_request_schema, load_response_schema])
def test_every_message_builds_and_round_trips(load: typing.Callable[[int, int], type]) -> None:
    """From nothing but defaults, and with a name that it does not have."""
    assert len(MESSAGES) > 300
    for key, version in MESSAGES:
        entity = load(key, version)
        built = build(entity, no_such_field=1)
        assert isinstance(built, entity)
        data = io.BytesIO()
        entity_writer(entity)(data, built)
        found, size = entity_reader(entity)(memoryview(data.getvalue()), 0)
        assert size == len(data.getvalue())
        assert found == built


@promise("K1")
def test_values_are_converted() -> None:
    """Integers become error codes and time spans, mappings become entities, sequences tuples."""
    metadata = build(
        response_type(3, 12),
        throttle_time=1500,
        brokers=[{"node_id": 1, "host": "h", "port": 2, "rack": None}],
        topics=[
            {
                "error_code": 3,
                "name": "t",
                "topic_id": uuid.UUID(int=5),
                "partitions": [{"error_code": ErrorCode.none, "partition_index": 0, "replica_nodes": [1, 2]}],
            }
        ],
    )
    assert metadata.throttle_time == datetime.timedelta(milliseconds=1500)
    assert metadata.brokers[0].host == "h"
    [topic] = metadata.topics
    assert topic.error_code is ErrorCode.unknown_topic_or_partition
    assert topic.partitions[0].replica_nodes == (1, 2)
    assert topic.partitions[0].isr_nodes == ()
    assert topic.is_internal is False


@promise("K1")
def test_versions_pick_what_they_have() -> None:
    """One set of values serves every version."""
    values = {"throttle_time": 5, "topics": [], "cluster_id": "c", "controller_id": 4, "brokers": []}
    for version in known_versions(3):
        built = build(response_type(3, version), **values)
        names = {field.name for field in fields(built)}
        assert ("cluster_id" in names) == (version >= 2)
        if "cluster_id" in names:
            assert built.cluster_id == "c"


@promise("K1")
def test_times() -> None:
    """Absolute times are milliseconds since 1970, and -1 is none where there may be none."""

    @dataclass(frozen=True)
    class Times:
        always: datetime.datetime
        perhaps: datetime.datetime | None
        span: datetime.timedelta

    made = build(Times, always=1000, perhaps=1000, span=7)
    assert made == Times(
        datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
        datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
        datetime.timedelta(milliseconds=7),
    )
    for nothing in (None, -1):
        assert build(Times, perhaps=nothing).perhaps is None
    assert builder(Times) is builder(Times)


# --- names that no message has ----------------------------------------------------------------------------


def names_of(entity: type) -> Iterator[str]:
    """All field names of a message, at any depth."""
    hints = typing.get_type_hints(entity)
    for field in fields(entity):
        yield field.name
        pending = [hints[field.name]]
        while pending:
            kind = pending.pop()
            pending += typing.get_args(kind)
            if is_dataclass(kind):
                yield from names_of(typing.cast(type, kind))


def said_in(module: ModuleType) -> dict[str, int]:
    """Names in dictionary displays and `dict(…)` calls, with the line of one of them."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Dict):
            names = [key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            if not any("." in name for name in names):  # those are configs, not fields
                found |= dict.fromkeys(names, node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            for keyword in node.keywords:
                if keyword.arg is not None:
                    found[keyword.arg] = node.lineno
    return found


MODULES = {name: module for name, module in vars(handlers).items() if isinstance(module, ModuleType)}


@promise("K1")
def test_handlers_are_found() -> None:
    assert {inspect.getmodule(api.handle) for api in APIS.values()} <= set(MODULES.values())


@promise("K1")
@pytest.mark.parametrize("name", MODULES)
def test_no_handler_says_a_name_that_no_message_has(name: str) -> None:
    """A misspelt field would silently be left out of every answer."""
    module = MODULES[name]
    known = {
        field
        for api in APIS.values()
        if inspect.getmodule(api.handle) is module
        for version in api.versions
        for entity in (response_type(api.key, version), request_type(api.key, version))
        for field in names_of(entity)
    }
    unknown = {said: line for said, line in said_in(module).items() if said not in known}
    assert not unknown, f"{module.__file__}: {unknown}"
