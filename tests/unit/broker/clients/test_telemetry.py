"""Clients' metrics (KIP-714): who is asked for what, and which pushes are taken."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import cramjam
import pytest
from kio.schema.errors import ErrorCode

from headwater.broker.clients.telemetry import Push, Telemetry, metric_names
from headwater.broker.errors import Coded
from headwater.clock import SystemChance
from headwater.errors import CorruptBatch
from headwater.settings import settings as config
from headwater.state.cluster.resources import ConfigResource, Resources
from headwater.state.commands.cluster import AlterResource
from tests.support.hands import Hands
from tests.support.nodes import Caller
from tests.support.promise import promise
from tests.unit.broker.calling import run

PROMISES = ("K14",)

API_VERSIONS, SUBSCRIBE, PUSH = 18, 71, 72
NONE = ErrorCode.none


def field(number: int, data: bytes) -> bytes:
    size = len(data)
    length = bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])
    return bytes([number << 3 | 2]) + length + data


def metrics_data(*names: str) -> bytes:
    """OTLP's MetricsData with metrics of these names, and other fields around them."""
    metrics = b"".join(field(2, field(1, name.encode()) + field(2, b"words") + b"\x21" + bytes(8)) for name in names)
    return field(1, field(1, b"") + field(2, field(1, b"scope") + metrics + b"\x18\x96\x01"))


DATA = metrics_data("org.apache.kafka.a", "org.apache.kafka.b")


def subscription(**configs: str) -> Resources:
    resources = Resources()
    resources.alter(AlterResource(ConfigResource.CLIENT_METRICS, "s", {"metrics": "a.", **configs}, ()))
    return resources


@promise("K14")
def test_names_of_metrics() -> None:
    assert metric_names(DATA) == ("org.apache.kafka.a", "org.apache.kafka.b")
    assert metric_names(b"") == ()
    for bad in (DATA[:-1], b"\x0a\x05ab", b"\x0b", b"\xff" * 11, b"\x09abc", metrics_data("x").replace(b"x", b"\xff")):
        with pytest.raises(CorruptBatch):
            metric_names(bad)


@promise("K14")
def test_who_is_asked_for_what() -> None:
    """Every subscription that matches counts; the shortest interval holds."""
    telemetry = Telemetry(config.Quotas(), Hands(), SystemChance())
    resources = subscription(match="client_id=app-.*, client_software_name=java")
    resources.alter(AlterResource(ConfigResource.CLIENT_METRICS, "z", {"metrics": "b.,c.", "interval.ms": "5000"}, ()))
    plain = telemetry.subscribe(None, {"client_id": "other"}, resources)
    assert (plain.metrics, plain.interval_ms) == (("b.", "c."), 5000)
    both = {"client_id": "app-1", "client_software_name": "java"}
    assert telemetry.subscribe(None, both, resources).metrics == ("a.", "b.", "c.")
    assert telemetry.subscribe(None, {"client_id": "app-1"}, resources).metrics == ("b.", "c.")
    resources.alter(AlterResource(ConfigResource.CLIENT_METRICS, "y", {"metrics": "*"}, ()))
    assert telemetry.subscribe(None, both, resources).metrics == ("*",)
    nothing = telemetry.subscribe(uuid.UUID(int=5), {}, Resources())
    assert (nothing.client, nothing.metrics, nothing.interval_ms) == (uuid.UUID(int=5), (), 300_000)


@promise("K14")
def test_clients_must_not_ask_too_often() -> None:
    """Unless there is something new to tell."""
    clock = Hands()
    telemetry = Telemetry(config.Quotas(telemetry_clients=2), clock, SystemChance())
    client = uuid.UUID(int=5)
    told = telemetry.subscribe(client, {}, subscription())
    with pytest.raises(Coded, match="next push interval"):
        telemetry.subscribe(client, {}, subscription())
    other = telemetry.subscribe(client, {}, subscription(metrics="b."))
    assert other.id != told.id
    clock.now += 300
    assert telemetry.subscribe(client, {}, subscription(metrics="b.")) == other
    for i in range(10, 20):
        telemetry.subscribe(uuid.UUID(int=i), {}, subscription())
    assert repr(telemetry) == "<Telemetry of 2 clients>"


@promise("K14")
@pytest.mark.parametrize(
    ("codec", "compress"),
    [
        (0, bytes),
        (1, lambda data: bytes(cramjam.gzip.compress(data))),
        (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
        (3, lambda data: bytes(cramjam.lz4.compress(data))),
        (4, lambda data: bytes(cramjam.zstd.compress(data))),
    ],
)
def test_pushes_are_opened_counted_and_handed_on(codec: int, compress: Any) -> None:
    got: list[Push] = []
    calls: list[Any] = []

    async def offload(call: Any, *arguments: Any) -> Any:
        calls.append(call)
        return call(*arguments)

    telemetry = Telemetry(config.Quotas(), Hands(), SystemChance(), got.append, offload)
    resources = subscription()
    told = telemetry.subscribe(None, {}, resources)
    data = compress(DATA)
    pushed = telemetry.push(
        told.client, {"client_id": "c"}, resources,
        subscription=told.id, terminating=False, codec=codec, data=data,
    )  # fmt: skip
    asyncio.run(pushed)
    assert [(p.client, p.attributes, bytes(p.data), len(p.names)) for p in got] == [
        (told.client, {"client_id": "c"}, DATA, 2)
    ]
    assert (telemetry.pushes, telemetry.bytes, telemetry.metrics, telemetry.refused) == (1, len(data), 2, 0)
    assert len(calls) == 1, "the event loop opens nothing"


@promise("K14")
def test_requests() -> None:
    """Answered with Kafka's error codes."""

    async def test(one: Caller) -> None:
        node = one.node
        software = {"client_software_name": "java", "client_software_version": "4.3"}
        before = {row.api_key for row in (await one(API_VERSIONS, 4, **software)).api_keys}
        assert not before & {SUBSCRIBE, PUSH}, "nobody wants metrics, so clients need not ask"
        matching = {"metrics": "org.", "interval.ms": "3600000", "match": "client_software_name=java,client_id=test"}
        await node.cluster.submit([AlterResource(ConfigResource.CLIENT_METRICS, "s", matching, ())])
        assert {row.api_key for row in (await one(API_VERSIONS, 4, **software)).api_keys} == before | {SUBSCRIBE, PUSH}
        told = await one(SUBSCRIBE, 0, client_instance_id=None)
        assert told.error_code is NONE
        assert (told.requested_metrics, told.telemetry_max_bytes) == (("org.",), 1 << 20)
        assert told.push_interval.total_seconds() == 300, "the default, which is shorter"
        assert set(told.accepted_compression_types) == {1, 2, 3, 4}
        client, number = told.client_instance_id, told.subscription_id

        async def push(
            identity: uuid.UUID | None, of: int, data: bytes, codec: int = 0, last: bool = True
        ) -> ErrorCode:
            fields = {"client_instance_id": identity, "subscription_id": of, "compression_type": codec}
            return (await one(PUSH, 0, **fields, terminating=last, metrics=data)).error_code  # type: ignore[no-any-return]

        assert await push(client, number, DATA, last=False) is NONE
        assert await push(client, number, DATA, last=False) is ErrorCode.throttling_quota_exceeded
        assert await push(None, number, DATA) is ErrorCode.invalid_request
        assert await push(uuid.UUID(int=0), number, DATA) is ErrorCode.invalid_request
        assert await push(client, number, DATA) is NONE, "the last one may come early"
        assert await push(client, number, DATA) is ErrorCode.invalid_request, "and nothing after it"
        for identity, of, data, codec, code in (
            (uuid.uuid4(), 7, DATA, 0, ErrorCode.unknown_subscription_id),
            (None, None, DATA, 9, ErrorCode.unsupported_compression_type),
            (None, None, bytes((1 << 20) + 1), 0, ErrorCode.telemetry_too_large),
            (None, None, b"no metrics", 0, ErrorCode.invalid_record),
            (None, None, b"no zstd", 4, ErrorCode.invalid_record),
            (None, None, bytes(cramjam.zstd.compress(bytes(9 << 20))), 4, ErrorCode.invalid_record),
        ):
            fresh = await one(SUBSCRIBE, 0, client_instance_id=None)
            whom, which = identity or fresh.client_instance_id, fresh.subscription_id if of is None else of
            assert await push(whom, which, data, codec) is code
        assert node.broker.telemetry.pushes == 2

    run(test)
